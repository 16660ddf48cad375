"""Listeners of half messages: one never decides, one commits when it is asked."""

from txlog.client.half_messages.half_message import HalfTransaction, LocalTransactionState


class Undecided:
    """A listener for which the outcome of the local transaction is always unknown."""

    def execute_local_transaction(
        self, half: HalfTransaction, arg: object
    ) -> LocalTransactionState:
        return LocalTransactionState.UNKNOW

    def check_local_transaction(self, half: HalfTransaction) -> LocalTransactionState:
        return LocalTransactionState.UNKNOW


class Committing(Undecided):
    """A listener whose local transactions are found committed."""

    def check_local_transaction(self, half: HalfTransaction) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE
