"""A listener of half messages, for tests of what lies around it."""

from txlog.client.half_messages.half_message import HalfTransaction, LocalTransactionState


class Undecided:
    """It never knows how the local transaction ended."""

    def execute_local_transaction(
        self, half: HalfTransaction, arg: object
    ) -> LocalTransactionState:
        return LocalTransactionState.UNKNOW

    def check_local_transaction(self, half: HalfTransaction) -> LocalTransactionState:
        return LocalTransactionState.UNKNOW
