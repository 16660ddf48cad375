"""The session of a transactional id, used without a producer."""

import pytest

from tests.logs.memory_log import MemoryLog
from tests.stores.scripted_store import answer_lost
from txlog.engine.transaction_session import TransactionSession
from txlog.errors import IllegalTransition, OutcomeUnknown
from txlog.model import TransactionOutcome


@pytest.mark.parametrize("is_staged", [True, False])
def test_R38_once_a_prepare_was_sent_an_abort_is_the_coordinators(is_staged: bool) -> None:
    """A transaction of nothing but a tag has no BEGIN, whichever way records are kept."""
    log = MemoryLog()
    session = TransactionSession(log.connection, "a", is_staged=is_staged)
    session.register("instance")
    tx_id = session.begin("tag")
    log.store.on("create", "transactions/", answer_lost, holding="commit_prepared", times=50)
    with pytest.raises(OutcomeUnknown):
        session.commit()
    log.store.heal()
    with pytest.raises(IllegalTransition):
        session.abort()
    assert log.admin.outcome(tx_id) is TransactionOutcome.COMMITTED
