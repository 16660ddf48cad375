"""Listeners of half messages, for tests of what lies around them."""

from txlog.client.half_messages.half_message import HalfTransaction, LocalTransactionState


class Undecided:
    """Never knows."""

    def execute_local_transaction(
        self, half: HalfTransaction, arg: object
    ) -> LocalTransactionState:
        return LocalTransactionState.UNKNOW

    def check_local_transaction(self, half: HalfTransaction) -> LocalTransactionState:
        return LocalTransactionState.UNKNOW
