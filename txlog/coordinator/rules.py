"""What a command on a coordinator leads to: rules R2-R5, R12, R27 and R39. Pure.

A rejection is the error that is raised. COMMIT and ABORT of a transaction compete for the same
slot, so the first event decides (I4); after a newer epoch, commands of an older one are refused
(I8).
"""

from __future__ import annotations

from txlog.coordinator.content import UNKNOWN, require_same_content
from txlog.coordinator.events import (
    AbortPrepared,
    AddParticipants,
    AdvanceStagingHorizon,
    BeginTransaction,
    CheckClaimed,
    ClaimCheck,
    CommitPrepared,
    CompleteTransaction,
    CoordinatorCommand,
    ExpireTransactionalId,
    GroupReleased,
    InitProducer,
    Participant,
    ParticipantsAdded,
    PrepareAbort,
    PrepareCommit,
    ProducerInitialised,
    Registration,
    ReleaseGroup,
    StagingHorizonAdvanced,
    TransactionalIdExpired,
    TransactionBarred,
    TransactionBegun,
    TransactionCompleted,
)
from txlog.coordinator.outcomes import Outcome
from txlog.coordinator.past import is_past, never_given_out, require_remembered
from txlog.coordinator.state import CoordinatorState, Transaction, TransactionalId
from txlog.coordinator.states import PREPARED, TransactionState, decision_of
from txlog.errors import (
    CommitFailed,
    ConcurrentTransactions,
    DuplicateTransaction,
    GroupOwned,
    IllegalTransition,
    InternalError,
    ProducerFenced,
    SegmentExpired,
    TransactionAborted,
)
from txlog.journal.machine import Decided
from txlog.layout import segment_id_of
from txlog.model import EPOCH_MAX, Decision, TxId


def decide(state: CoordinatorState, command: CoordinatorCommand) -> Decided:
    """The events of `command`. Raises the rejection."""
    match command:
        case InitProducer():
            return _decide_init(state, command)
        case BeginTransaction():
            return _decide_begin(state, command)
        case AddParticipants():
            return _decide_add(state, command)
        case PrepareCommit():
            return _decide_commit(state, command)
        case ClaimCheck():
            return _decide_check(state, command)
        case PrepareAbort():
            return _decide_abort(state, command)
        case CompleteTransaction():
            return _decide_complete(state, command)
        case AdvanceStagingHorizon():
            if command.segment_id <= state.horizon:
                return Decided()
            return Decided((StagingHorizonAdvanced(command.segment_id),))
        case ReleaseGroup():
            is_owned = command.group in state.owners
            return Decided((GroupReleased(command.group),) if is_owned else ())
        case ExpireTransactionalId():
            return _decide_expiry(state, command)


def _decide_init(state: CoordinatorState, command: InitProducer) -> Decided:
    """One entry: a new epoch, and an end to every ongoing transaction (rule R5).

    Also for the instance that is registered already: its earlier process may have died with a
    prepare under way, and a transaction number of an epoch must never be used again (R4).
    """
    known = state.ids.get(command.transactional_id)
    if command.succeeds:
        _check_instance(state, command)
    if known is not None:
        _require_nothing_prepared(command.transactional_id, known)
        if command.instance in known.superseded:
            raise ProducerFenced(
                f"run {command.instance} of {command.transactional_id!r} was superseded by run "
                f"{known.instance} and may not come back; stop this one.",
                instance=command.instance,
                current_instance=known.instance,
            )
    _check_owners(state, command.transactional_id, command.groups, command.take_over)
    pid, epoch = _next_epoch(known, command.fresh_pid)
    event = ProducerInitialised(
        transactional_id=command.transactional_id,
        pid=pid,
        epoch=epoch,
        instance=command.instance,
        timeout_ms=command.timeout_ms,
        at_ms=command.now_ms,
        concurrent=command.concurrent,
        is_run=command.is_run,
        groups=command.groups,
        may_skip=command.may_skip,
    )
    to_finish = tuple(known.open) if known is not None else ()
    return Decided((event,), Registration(command.transactional_id, pid, epoch, -1, to_finish))


def _check_instance(state: CoordinatorState, command: InitProducer) -> None:
    """An instance that was fenced may not register itself again (I8)."""
    newest = _known(state, command.transactional_id).instance
    if newest != command.succeeds:
        raise ProducerFenced(
            f"instance {newest} of {command.transactional_id!r} has taken over from instance "
            f"{command.succeeds}. Close this one.",
            transactional_id=command.transactional_id,
            current_instance=newest,
        )


def _next_epoch(known: TransactionalId | None, fresh_pid: int) -> tuple[int, int]:
    if known is None or known.epoch >= EPOCH_MAX:
        return fresh_pid, 0
    return known.pid, known.epoch + 1


def _require_nothing_prepared(name: str, known: TransactionalId) -> None:
    prepared = [tx_id for tx_id, found in known.open.items() if found.state in PREPARED]
    if prepared:
        raise ConcurrentTransactions(
            f"transaction {prepared[0]} of {name!r} is decided and not yet complete; it is being "
            "finished, try again.",
            transactional_id=name,
            tx_ids=tuple(prepared),
        )


def _check_owners(
    state: CoordinatorState, name: str, groups: tuple[str, ...], take_over: bool
) -> None:
    """A group has one owning transactional id (rule R12)."""
    for group in groups:
        owner = state.owners.get(group)
        if owner is not None and owner != name and not take_over:
            instance = state.ids[owner].instance if owner in state.ids else "unknown"
            raise GroupOwned(
                f"consumer group {group!r} is owned by {owner!r} (instance {instance}), not by "
                f"{name!r}. If both are to see every record, load a DataFrame for each query, with "
                "a group.id each: two queries on one DataFrame share its group. If that query is "
                "gone for good, let this one take over with the option group.takeover=true.",
                group=group,
                owner=owner,
                owner_instance=instance,
            )


def _known(state: CoordinatorState, name: str) -> TransactionalId:
    """The registered id. Raises ProducerFenced if it is unknown."""
    known = state.ids.get(name)
    if known is None:
        raise ProducerFenced(
            f"{name!r} was forgotten after transactional.id.expiration.ms without a transaction, "
            "or never registered. Close this producer and open a new one.",
            transactional_id=name,
        )
    return known


def _open(state: CoordinatorState, name: str, tx_id: TxId) -> Transaction | None:
    """None if it is over; a late helper may even find its id forgotten."""
    known = state.ids.get(name)
    return None if known is None else known.open.get(tx_id)


def _check_epoch(name: str, known: TransactionalId, tx_id: TxId) -> None:
    """Only the newest epoch of the id may act (I8)."""
    if (tx_id.pid, tx_id.epoch) == (known.pid, known.epoch):
        return
    if tx_id.pid == known.pid and tx_id.epoch > known.epoch:
        raise never_given_out(tx_id)
    raise ProducerFenced(
        f"{name!r} has epoch {known.epoch} of producer {known.pid} by now (instance "
        f"{known.instance}); transaction {tx_id} belongs to an older instance. Close this one.",
        transactional_id=name,
        current_instance=known.instance,
    )


def require_current(state: CoordinatorState, name: str, tx_id: TxId, tag: str = "") -> None:
    """Raises what PREPARE_COMMIT would answer by now: ProducerFenced, DuplicateTransaction,
    TransactionAborted if it is over or barred."""
    known = _known(state, name)
    _check_epoch(name, known, tx_id)
    _check_tag(state, tx_id, tag)
    if tx_id not in known.open and tx_id.number <= known.begun_number:
        raise _is_over(tx_id)


def _check_tag(state: CoordinatorState, tx_id: TxId, tag: str) -> None:
    """A tag is an idempotency key: one transaction of this coordinator commits with it."""
    winner = state.committed_with_tag(tag) if tag else None
    if winner is not None and winner != tx_id:
        raise DuplicateTransaction(
            f"a transaction with the tag {tag!r} is committed already ({winner}), so {tx_id} may "
            "not be: what it was to do is done. Abort it, and go on with the next one.",
            tag=tag,
            tx_id=str(tx_id),
            committed=str(winner),
        )


def _require_next(name: str, known: TransactionalId, tx_id: TxId) -> None:
    """A number is used once, and after the transaction before it is complete (R4, R5, R45).

    An instance may have several transactions open if it says so, but nothing of an epoch before:
    a topic skips markers of an older epoch than the last one that it has applied (R6).
    """
    older = any((o.pid, o.epoch) != (tx_id.pid, tx_id.epoch) for o in known.open)
    if known.open and (older or not known.concurrent):
        _require_nothing_prepared(name, known)
        raise IllegalTransition(
            f"{name!r} has transaction {next(iter(known.open))} open and cannot begin {tx_id}; "
            "commit or abort it first."
        )
    if tx_id.number <= known.begun_number:
        raise _is_over(tx_id)


def _is_over(tx_id: TxId) -> TransactionAborted:
    return TransactionAborted(
        f"transaction {tx_id} is over, or was barred by an abort. Abort it here, then begin again.",
        tx_id=str(tx_id),
    )


def _decide_begin(state: CoordinatorState, command: BeginTransaction) -> Decided:
    known = _known(state, command.transactional_id)
    _check_epoch(command.transactional_id, known, command.tx_id)
    transaction = known.open.get(command.tx_id)
    if transaction is not None and transaction.state is TransactionState.ONGOING:
        # A BEGIN whose answer was lost, perhaps sent again for another topic: none may be left out.
        return _with_participants(command, _news(transaction.participants, command.participants))
    if transaction is not None or _outcome(state, known, command.tx_id) is not None:
        raise _is_decided(state, command.tx_id, transaction)
    require_remembered(state, command.tx_id)
    _require_next(command.transactional_id, known, command.tx_id)
    _check_horizon(state, command.participants)
    event = TransactionBegun(
        transactional_id=command.transactional_id,
        tx_id=command.tx_id,
        at_ms=command.now_ms,
        timeout_ms=command.timeout_ms,
        participants=command.participants,
        tag=command.tag,
        check_back=command.check_back,
    )
    return Decided((event,))


def _decide_check(state: CoordinatorState, command: ClaimCheck) -> Decided:
    """Of several live producers of a group, one asks; if it dies after this, the check counts."""
    transaction = _open(state, command.transactional_id, command.tx_id)
    if transaction is None or not transaction.is_check_due(command.now_ms):
        return Decided((), False)
    check = transaction.checks + 1
    event = CheckClaimed(command.transactional_id, command.tx_id, check, command.now_ms)
    return Decided((event,), True)


def _decide_add(state: CoordinatorState, command: AddParticipants) -> Decided:
    known = _known(state, command.transactional_id)
    _check_epoch(command.transactional_id, known, command.tx_id)
    transaction = known.open.get(command.tx_id)
    if transaction is None or transaction.state is not TransactionState.ONGOING:
        raise _is_decided(state, command.tx_id, transaction)
    _check_owners(state, command.transactional_id, command.groups, take_over=False)
    participants = _news(transaction.participants, command.participants)
    groups = tuple(group for group in command.groups if group not in transaction.groups)
    return _with_participants(command, participants, groups)


def _with_participants(
    command: BeginTransaction | AddParticipants,
    participants: tuple[Participant, ...],
    groups: tuple[str, ...] = (),
) -> Decided:
    if not participants and not groups:
        return Decided()
    event = ParticipantsAdded(command.transactional_id, command.tx_id, participants, groups)
    return Decided((event,))


def _news(
    known: tuple[Participant, ...], wanted: tuple[Participant, ...]
) -> tuple[Participant, ...]:
    """Those participants that add a partition."""
    declared = {participant.topic_id: set(participant.partitions) for participant in known}
    return tuple(p for p in wanted if not set(p.partitions) <= declared.get(p.topic_id, set()))


def _is_decided(
    state: CoordinatorState, tx_id: TxId, transaction: Transaction | None
) -> TransactionAborted:
    """The rejection of a step that comes too late."""
    current = None if transaction is None else transaction.state
    outcome = state.outcome(tx_id)
    said = current or (f"over ({outcome.decision})" if outcome else "not open")
    decided = decision_of(current) if current else (outcome and outcome.decision)
    if _is_dead_letter(state, tx_id, transaction):
        return TransactionAborted(
            f"transaction {tx_id} is over: it was never decided, and its messages are in "
            "the dead-letter topic. Replay them from there if they should be sent.",
            tx_id=str(tx_id),
        )
    if decided is Decision.COMMIT:
        raise IllegalTransition(
            f"transaction {tx_id} is {said}: it is committed, and takes nothing more. Begin "
            "another.",
            tx_id=str(tx_id),
        )
    return TransactionAborted(
        f"transaction {tx_id} is {said}: it was ended by a timeout, an operator or a newer "
        "instance. Abort it here, then begin again.",
        tx_id=str(tx_id),
    )


def _decide_commit(state: CoordinatorState, command: PrepareCommit) -> Decided:
    """The decision. A repeat of one that was decided is answered, not decided again."""
    if command.transactional_id not in state.ids and _is_committed_without_id(state, command):
        return Decided()
    known = _known(state, command.transactional_id)
    transaction = known.open.get(command.tx_id)
    current = None if transaction is None else transaction.state
    decided = _decision(state, known, command.tx_id, current)
    if decided is Decision.COMMIT and command.dead_letter == _is_dead_letter(
        state, command.tx_id, transaction
    ):
        require_same_content(command, _content(state, command.tx_id, transaction))
        return Decided()
    if decided is not None:
        raise _is_decided(state, command.tx_id, transaction)
    if transaction is None:
        require_remembered(state, command.tx_id)
    _check_epoch(command.transactional_id, known, command.tx_id)
    if transaction is None:
        _require_next(command.transactional_id, known, command.tx_id)
    groups = command.groups if transaction is None else (*transaction.groups, *command.groups)
    _check_owners(state, command.transactional_id, groups, take_over=False)
    # BEGIN's segments were checked then, and are referred to since: vacuum keeps them.
    _check_horizon(state, command.participants)
    _check_mark(state, command)
    _check_tag(
        state, command.tx_id, command.tag or ("" if transaction is None else transaction.tag)
    )
    event = CommitPrepared(
        transactional_id=command.transactional_id,
        tx_id=command.tx_id,
        at_ms=command.now_ms,
        participants=command.participants,
        groups=command.groups,
        mark=command.mark,
        tag=command.tag,
        dead_letter=command.dead_letter,
    )
    return Decided((event,))


def _is_committed_without_id(state: CoordinatorState, command: PrepareCommit) -> bool:
    """Whether it is committed, of an id that has expired. Raises OutcomeUnknown."""
    outcome = state.outcome(command.tx_id)
    if outcome is None:
        require_remembered(state, command.tx_id)
        return False
    if outcome.decision is Decision.COMMIT and outcome.dead_letter != command.dead_letter:
        raise _is_decided(state, command.tx_id, None)
    if outcome.decision is Decision.COMMIT:
        require_same_content(command, outcome.content)
    return outcome.decision is Decision.COMMIT


def _is_dead_letter(state: CoordinatorState, tx_id: TxId, transaction: Transaction | None) -> bool:
    """Whether what was decided is that a half transaction is given up."""
    if transaction is not None:
        return transaction.dead_letter
    outcome = state.outcome(tx_id)
    return outcome is not None and outcome.dead_letter


def _content(state: CoordinatorState, tx_id: TxId, transaction: Transaction | None) -> int:
    """What the decided transaction is about (R35)."""
    if transaction is not None:
        return transaction.content
    outcome = state.outcome(tx_id)
    return UNKNOWN if outcome is None else outcome.content


def _decision(
    state: CoordinatorState, known: TransactionalId, tx_id: TxId, current: TransactionState | None
) -> Decision | None:
    if current is not None:
        return decision_of(current)
    outcome = _outcome(state, known, tx_id)
    return outcome.decision if outcome is not None else None


def _outcome(state: CoordinatorState, known: TransactionalId, tx_id: TxId) -> Outcome | None:
    """How it ended. One that was never begun has no outcome (R4), so none is searched for."""
    is_current = (tx_id.pid, tx_id.epoch) == (known.pid, known.epoch)
    if is_current and tx_id.number > known.begun_number:
        return None
    return state.outcome(tx_id)


def _check_horizon(state: CoordinatorState, participants: tuple[Participant, ...]) -> None:
    """A staged segment below the horizon may have been collected (R42)."""
    for participant in participants:
        for segment in participant.segments:
            if segment_id_of(segment.path) < state.horizon:
                raise SegmentExpired(
                    f"{segment.path} was staged so long ago that it may have been collected; run "
                    "the batch again.",
                    path=segment.path,
                )


def _check_mark(state: CoordinatorState, command: PrepareCommit) -> None:
    """The same micro-batch is committed once (rule R2, I10)."""
    mark = command.mark
    newest = state.marks.get(mark.key) if mark is not None else None
    if mark is not None and newest is not None and mark.batch_id <= newest.batch_id:
        raise CommitFailed(
            f"batch {mark.batch_id} of query {mark.query_id} came after batch {newest.batch_id} "
            "was committed; another run committed it. The replay tests decide what to do.",
            query_id=mark.query_id,
            batch_id=mark.batch_id,
            newest_batch_id=newest.batch_id,
        )


def _decide_abort(state: CoordinatorState, command: PrepareAbort) -> Decided:
    """Legal in every state but after the commit decision; of an unknown one it is a bar (R3)."""
    known = _known(state, command.transactional_id)
    transaction = known.open.get(command.tx_id)
    current = None if transaction is None else transaction.state
    decided = _decision(state, known, command.tx_id, current)
    if decided is None and transaction is None and not command.undecided:
        require_remembered(state, command.tx_id)
    if decided is Decision.COMMIT:
        raise IllegalTransition(
            f"transaction {command.tx_id} is decided: COMMIT. It can no longer be aborted; "
            "any process that meets it finishes it.",
            tx_id=str(command.tx_id),
        )
    if current is TransactionState.ONGOING:
        epoch = known.epoch
        # A half transaction is ended alone: a fence would end all others of its producer with it,
        # whose local transactions may be committed.
        is_alone = transaction is not None and transaction.check_back is not None
        if command.fence and epoch < EPOCH_MAX and not is_alone:
            epoch += 1
        event = AbortPrepared(command.transactional_id, command.tx_id, command.now_ms, epoch)
        return Decided((event,))
    if transaction is not None or is_past(known, command.tx_id):
        return Decided()
    return Decided((TransactionBarred(command.transactional_id, command.tx_id, command.now_ms),))


def _decide_expiry(state: CoordinatorState, command: ExpireTransactionalId) -> Decided:
    """Only what is idle. A Spark query's id is kept: its superseded runs may not come back (R27),
    and only an operator knows that the query will not (R2)."""
    known = state.ids.get(command.transactional_id)
    if known is None or known.open or known.is_run or known.updated_ms > command.before_ms:
        return Decided((), False)
    return Decided((TransactionalIdExpired(command.transactional_id),), True)


def _decide_complete(state: CoordinatorState, command: CompleteTransaction) -> Decided:
    transaction = _open(state, command.transactional_id, command.tx_id)
    if transaction is None:
        return Decided()
    if transaction.state not in PREPARED:
        raise InternalError(
            f"transaction {command.tx_id} is {transaction.state} and cannot be complete. "
            "Please report this."
        )
    return Decided((TransactionCompleted(command.transactional_id, command.tx_id, command.now_ms),))
