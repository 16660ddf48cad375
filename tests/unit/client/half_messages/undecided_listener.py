"""A listener of half messages that never decides."""

from txlog.client.half_messages.half_message import HalfTransaction, LocalTransactionState


class Undecided:
    """A listener for which the outcome of the local transaction is always unknown."""

    def execute_local_transaction(
        self, half: HalfTransaction, arg: object
    ) -> LocalTransactionState:
        return LocalTransactionState.UNKNOW

    def check_local_transaction(self, half: HalfTransaction) -> LocalTransactionState:
        return LocalTransactionState.UNKNOW
