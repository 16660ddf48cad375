"""The coordinator's rules: from a command to events or an error. Pure.

They guard R2 to R5, R11, R12, R27, R35, R39 and R40.
COMMIT and ABORT of a transaction compete for the same slot, so the first event decides (I4). After
a newer epoch is registered, commands of older ones are refused (I8).
"""

from __future__ import annotations

from dataclasses import replace

from txlog.coordinator.events import (
    NO_CONTENT,
    AbortPrepared,
    CheckClaimed,
    ClaimCheck,
    CommitPrepared,
    CoordinatorCommand,
    ExpireTransactionalId,
    GroupReleased,
    InitProducer,
    NewestMark,
    Participant,
    ParticipantsAdded,
    PrepareAbort,
    ProducerInitialised,
    Registration,
    StagingHorizonAdvanced,
    TopicDeletionBegun,
    TopicsPresent,
    TransactionalIdExpired,
    TransactionBarred,
    TransactionBegun,
    TransactionCompleted,
)
from txlog.coordinator.outcomes import Outcome
from txlog.coordinator.state import CoordinatorState
from txlog.coordinator.transaction import (
    PREPARED,
    Transaction,
    TransactionalId,
    TransactionState,
)
from txlog.errors import (
    CommitFailed,
    ConcurrentTransactions,
    CorruptData,
    DuplicateTransaction,
    GroupOwned,
    IllegalTransition,
    InternalError,
    OutcomeUnknown,
    ProducerFenced,
    SegmentExpired,
    TransactionAborted,
    UnknownTopic,
)
from txlog.journal.machine import Decided
from txlog.layout import segment_id_of
from txlog.model import EPOCH_MAX, Decision, TxId, validate_transactional_id
from txlog.topic.records.batch import InlineSegment


def decide(state: CoordinatorState, command: CoordinatorCommand) -> Decided:
    """The events of `command`. Raises the error that refuses it."""
    match command:
        case InitProducer():
            return _decide_init(state, command)
        case TransactionBegun():
            return _decide_begin(state, command)
        case ParticipantsAdded():
            return _decide_add(state, command)
        case CommitPrepared():
            return _decide_commit(state, command)
        case ClaimCheck():
            return _decide_check(state, command)
        case PrepareAbort():
            return _decide_abort(state, command)
        case TransactionCompleted():
            return _decide_complete(state, command)
        case StagingHorizonAdvanced():
            return Decided((command,) if command.segment_id > state.horizon else ())
        case GroupReleased():
            return Decided((command,) if command.group in state.owners else ())
        case ExpireTransactionalId():
            return _decide_expiry(state, command)
        case TopicDeletionBegun():
            new = tuple(one for one in command.topic_ids if one not in state.deleted_topics)
            return Decided((TopicDeletionBegun(new),) if new else ())
        case NewestMark():
            if state.marks.get(command.key) != command.mark:
                raise _was_overtaken(command)
            return Decided()
        case TopicsPresent():
            for name, topic_id in command.topics:
                if topic_id in state.deleted_topics:
                    raise deleted_meanwhile(name)
            return Decided()


def _decide_init(state: CoordinatorState, command: InitProducer) -> Decided:
    """Register a new epoch, which aborts every ongoing transaction (rule R5).

    An instance that is registered already gets a new epoch, too: its earlier process may have died
    while a prepare was under way, and a transaction number of an epoch must never be reused (R4).
    """
    known = state.ids.get(validate_transactional_id(command.transactional_id))
    if command.succeeds:
        _check_instance(state, command)
    to_finish: tuple[TxId, ...] = ()
    if known is not None:
        to_finish = tuple(known.open)
        # Decided markers come first: a topic skips those of an epoch older than the last it applied
        # (R6).
        _require_nothing_prepared(command.transactional_id, known)
        if command.instance in known.superseded:
            raise ProducerFenced(
                f"run {command.instance} of {command.transactional_id!r} was superseded by run "
                f"{known.instance} and may not return; stop this one.",
                instance=command.instance,
                current_instance=known.instance,
            )
    _check_owners(state, command.transactional_id, command.groups, command.take_over)
    pid, epoch = command.fresh_pid, 0
    # The epoch above the last stays free: ABORT markers fence the old producer id with it.
    if known is not None and known.epoch < EPOCH_MAX:
        pid, epoch = known.pid, known.epoch + 1
    event = ProducerInitialised(
        transactional_id=command.transactional_id,
        pid=pid,
        epoch=epoch,
        instance=command.instance,
        timeout_ms=command.timeout_ms,
        at_ms=command.now_ms if known is None else known.used_ms(command.now_ms),
        concurrent=command.concurrent,
        is_run=command.is_run,
        groups=command.groups,
        may_skip=command.may_skip,
    )
    return Decided((event,), Registration(pid, epoch, to_finish))


def _check_instance(state: CoordinatorState, command: InitProducer) -> None:
    """A fenced instance may not register again (I8)."""
    newest = _known(state, command.transactional_id).instance
    if newest != command.succeeds:
        raise ProducerFenced(
            f"instance {newest} of {command.transactional_id!r} has taken over from instance "
            f"{command.succeeds}. Close this one.",
            transactional_id=command.transactional_id,
            current_instance=newest,
        )


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
    """Raises GroupOwned if a group belongs to another transactional id (rule R12)."""
    for group in groups:
        owner = state.owners.get(group)
        if owner is not None and owner != name and not take_over:
            instance = state.ids[owner].instance if owner in state.ids else "unknown"
            raise GroupOwned(
                f"consumer group {group!r} is owned by {owner!r} (instance {instance}), not by "
                f"{name!r}. If both queries should see every record, load a DataFrame for each, "
                "with a group.id of its own, and give this one a new checkpoint: two queries on "
                "one DataFrame share its group. If the other query will not run again, let this "
                "one take over the group, with the option group.takeover=true until a batch of it "
                "is committed.",
                group=group,
                owner=owner,
                owner_instance=instance,
            )


def _known(state: CoordinatorState, name: str) -> TransactionalId:
    """The registered id. Raises ProducerFenced if the coordinator does not know it."""
    known = state.ids.get(name)
    if known is None:
        raise ProducerFenced(
            f"{name!r} was forgotten after transactional.id.expiration.ms without a transaction, "
            "or never registered. Close this producer and open a new one.",
            transactional_id=name,
        )
    return known


def _check_epoch(name: str, known: TransactionalId, tx_id: TxId) -> None:
    """Only the newest epoch of the id may act (I8)."""
    if _is_current(known, tx_id):
        return
    raise ProducerFenced(
        f"{name!r} now has epoch {known.epoch} of producer {known.pid} (instance "
        f"{known.instance}); transaction {tx_id} belongs to an older instance. Close this one.",
        transactional_id=name,
        current_instance=known.instance,
    )


def require_current(state: CoordinatorState, name: str, tx_id: TxId, tag: str = "") -> None:
    """Raises the error that a PREPARE_COMMIT would raise now: ProducerFenced, DuplicateTransaction,
    or TransactionAborted if the transaction is over or barred."""
    known = _known(state, name)
    _check_epoch(name, known, tx_id)
    _check_tag(state, tx_id, tag)
    if tx_id not in known.open and tx_id.number <= known.begun_number:
        raise _is_over(tx_id)


def _check_tag(state: CoordinatorState, tx_id: TxId, tag: str) -> None:
    """Raises DuplicateTransaction if another transaction of this coordinator has committed with
    the tag, which is an idempotency key."""
    winner = state.committed_with_tag(tag) if tag else None
    if winner is not None and winner != tx_id:
        raise DuplicateTransaction(
            f"a transaction with the tag {tag!r} is committed already ({winner}), so {tx_id} "
            "cannot be: its work is done. Abort it, and continue with the next one.",
            tag=tag,
            tx_id=str(tx_id),
            committed=str(winner),
        )


def _require_next(name: str, known: TransactionalId, tx_id: TxId) -> None:
    """A number is used once, and only after the previous transaction is complete (R4, R5, R45).

    A concurrent instance may have several transactions open, but none of an earlier epoch: a topic
    skips markers of an epoch older than that of the last marker that it has applied (R6).
    """
    # The lowest and the highest are enough, as the keys are in order.
    ends = (known.open.first_key() or tx_id, known.open.last_key() or tx_id)
    older = any((o.pid, o.epoch) != (tx_id.pid, tx_id.epoch) for o in ends)
    if known.open and (older or not known.concurrent):
        # The caller finishes a decided one and tries again; an ongoing one is its owner's to end.
        _require_nothing_prepared(name, known)
        raise IllegalTransition(
            f"{name!r} has transaction {next(iter(known.open))} open and cannot begin {tx_id}; "
            "commit or abort it first."
        )
    # Also if several may be open: a later number's marker may have a floor above this one (R7).
    if tx_id.number <= known.begun_number:
        raise _is_over(tx_id)


def _is_over(tx_id: TxId) -> TransactionAborted:
    return TransactionAborted(
        f"transaction {tx_id} is over, or was barred by an abort. Abort it here, then begin again.",
        tx_id=str(tx_id),
    )


def _decide_begin(state: CoordinatorState, command: TransactionBegun) -> Decided:
    known = _known(state, command.transactional_id)
    _check_epoch(command.transactional_id, known, command.tx_id)
    transaction = known.open.get(command.tx_id)
    if transaction is not None and transaction.state is TransactionState.ONGOING:
        # A BEGIN repeated after its answer was lost may name another topic. It is added: without a
        # marker there, that topic's readers would wait for ever.
        require_not_deleted(state, command.participants)
        return _added(command, transaction)
    if transaction is not None or _outcome(state, known, command.tx_id) is not None:
        raise _is_decided(state, command.tx_id, transaction)
    require_remembered(state, command.tx_id)
    _require_next(command.transactional_id, known, command.tx_id)
    require_not_deleted(state, command.participants)
    _check_horizon(state, command.participants)
    return Decided((command,))


def _decide_check(state: CoordinatorState, command: ClaimCheck) -> Decided:
    """One producer of a group claims each check; if it dies afterwards, the check still counts."""
    transaction = state.open_transaction(command.transactional_id, command.tx_id)
    if transaction is None or not transaction.is_check_due(command.now_ms):
        return Decided((), False)
    check = transaction.checks + 1
    event = CheckClaimed(command.transactional_id, command.tx_id, check, command.now_ms)
    return Decided((event,), True)


def _decide_add(state: CoordinatorState, command: ParticipantsAdded) -> Decided:
    known = _known(state, command.transactional_id)
    _check_epoch(command.transactional_id, known, command.tx_id)
    transaction = known.open.get(command.tx_id)
    if transaction is None or transaction.state is not TransactionState.ONGOING:
        raise _is_decided(state, command.tx_id, transaction)
    _check_owners(state, command.transactional_id, command.groups, take_over=False)
    require_not_deleted(state, command.participants)
    return _added(command, transaction, command.groups)


def _added(
    command: TransactionBegun | ParticipantsAdded,
    transaction: Transaction,
    groups: tuple[str, ...] = (),
) -> Decided:
    """Add the named participants with a new partition, and new groups; a repeat adds nothing."""
    # By id: a topic that was created again under the name is another participant (R11).
    declared = {known.topic_id: set(known.partitions) for known in transaction.participants}
    participants = tuple(
        named
        for named in command.participants
        if not set(named.partitions) <= declared.get(named.topic_id, set())
    )
    groups = tuple(group for group in groups if group not in transaction.groups)
    event = ParticipantsAdded(command.transactional_id, command.tx_id, participants, groups)
    return Decided((event,) if participants or groups else ())


def _is_decided(
    state: CoordinatorState, tx_id: TxId, transaction: Transaction | None
) -> TransactionAborted:
    """The error for a step of a transaction that is decided or not open. Raises IllegalTransition
    instead if it is committed."""
    outcome = state.outcome(tx_id) if transaction is None else transaction.decided
    decision = None if outcome is None else outcome.decision
    if outcome is not None and outcome.dead_letter:
        return TransactionAborted(
            f"transaction {tx_id} is over: its producers never decided it, and its messages are in "
            "the dead-letter topic. Replay them from there if they should be sent.",
            tx_id=str(tx_id),
        )
    over = "not open" if decision is None else f"over ({decision})"
    shown = over if transaction is None else transaction.state
    if decision is Decision.COMMIT:
        raise IllegalTransition(
            f"transaction {tx_id} is {shown}: it is committed, and nothing can be added to it. "
            "Begin another.",
            tx_id=str(tx_id),
        )
    return TransactionAborted(
        f"transaction {tx_id} is {shown}: it was ended by a timeout, a check, an operator or a "
        "newer instance. Abort it, then send all of it again.",
        tx_id=str(tx_id),
    )


def _decide_commit(state: CoordinatorState, command: CommitPrepared) -> Decided:
    """The decision to commit. A repeat of a commit that was decided succeeds without another event,
    even if the transactional id has expired since."""
    name, tx_id = command.transactional_id, command.tx_id
    transaction = state.open_transaction(name, tx_id)
    decided = _outcome(state, state.ids.get(name), tx_id)
    # A repeat is answered before the checks, which its own mark or a risen horizon would fail.
    if decided is not None and decided.decision is Decision.COMMIT:
        if decided.dead_letter != command.dead_letter:
            raise _is_decided(state, tx_id, transaction)
        require_same_content(command, decided.content)
        return Decided()
    # Before `_known`: ProducerFenced of an expired id would mean that nothing was committed (R39).
    if decided is None and transaction is None:
        require_remembered(state, tx_id)
    known = _known(state, name)
    if decided is not None:
        raise _is_decided(state, tx_id, transaction)
    _check_epoch(name, known, tx_id)
    if transaction is None:
        _require_next(name, known, tx_id)
    # Declared groups are checked again: another id may have taken them over since (R12).
    groups = command.groups if transaction is None else (*transaction.groups, *command.groups)
    _check_owners(state, name, groups, take_over=False)
    # Dead letters replace the messages, whose topics may be deleted.
    declared = () if transaction is None or command.dead_letter else transaction.participants
    require_not_deleted(state, (*declared, *command.participants))
    # Vacuum keeps the segments that BEGIN has named, which were checked then.
    _check_horizon(state, command.participants)
    _check_mark(state, command)  # At most one of the two applies: a micro-batch has no tag.
    _check_tag(state, tx_id, command.tag or ("" if transaction is None else transaction.tag))
    return Decided((command,))


def require_same_content(command: CommitPrepared, committed: int) -> None:
    """Raises ProducerFenced if the committed transaction has other content than the command
    (R35)."""
    content = command.content
    if NO_CONTENT not in (content, committed) and content != committed:
        raise ProducerFenced(
            f"transaction {command.tx_id} of {command.transactional_id!r} was committed with "
            "other records than these, so two processes use one registration: a running producer "
            "was copied, perhaps with its machine. Nothing of these records was committed. Close "
            "this producer, open a new one, and send them again.",
            transactional_id=command.transactional_id,
            tx_id=str(command.tx_id),
        )


def _outcome(state: CoordinatorState, known: TransactionalId | None, tx_id: TxId) -> Outcome | None:
    """How the transaction was decided or ended. No outcome is searched for if the transaction has
    never begun (R4)."""
    if known is not None:
        if (transaction := known.open.get(tx_id)) is not None:
            return transaction.decided
        is_current = (tx_id.pid, tx_id.epoch) == (known.pid, known.epoch)
        # This holds for every new transaction; a search would decode all old generations.
        if is_current and tx_id.number > known.begun_number:
            return None
    return state.outcome(tx_id)


def require_remembered(state: CoordinatorState, tx_id: TxId) -> None:
    """Raises OutcomeUnknown for a transaction without a known outcome, which may have committed,
    unless the coordinator has dropped no outcome that high (rule R39)."""
    if state.may_have_forgotten(tx_id):
        raise OutcomeUnknown(
            f"transaction {tx_id} ended so long ago that its coordinator has forgotten its "
            "outcome: it may be committed. Look for its records before you write them again; this "
            "producer can only be closed.",
            tx_id=str(tx_id),
        )


def require_not_deleted(state: CoordinatorState, participants: tuple[Participant, ...]) -> None:
    """Raises UnknownTopic if one of the topics is deleted, or its deletion has begun (R40)."""
    for participant in participants:
        if participant.topic_id in state.deleted_topics:
            raise deleted_topic(participant.topic, participant.topic_id)


def deleted_topic(name: str, topic_id: str) -> UnknownTopic:
    """The error for records of a topic that was deleted after they were sent."""
    return UnknownTopic(
        f"topic {name!r} was deleted while records for it waited for a decision: nothing of this "
        "transaction was, or will be, committed. Abort it, and begin again: records then go to the "
        "topic of that name, if there is one.",
        topic=name,
        topic_id=topic_id,
    )


def deleted_meanwhile(topic: str) -> CommitFailed:
    """The error for offsets of records of a deleted topic, whose name another one may have."""
    return CommitFailed(
        f"topic {topic!r} was deleted after its records were read, and perhaps created again: "
        "their offsets mean nothing there, and were not committed. A consumer reads the new topic "
        "from its start at its next poll; a query needs a new checkpoint.",
        topic=topic,
    )


def _check_horizon(state: CoordinatorState, participants: tuple[Participant, ...]) -> None:
    """Raises SegmentExpired if a staged segment is below the horizon: vacuum may have deleted it
    (R42)."""
    for participant in participants:
        for segment in participant.segments:
            is_inline = isinstance(segment, InlineSegment)  # It is not stored yet.
            if not is_inline and segment_id_of(segment.path) < state.horizon:
                raise SegmentExpired(
                    f"{segment.path} was staged so long ago that vacuum may have deleted it; run "
                    "the batch again.",
                    path=segment.path,
                )


def _check_mark(state: CoordinatorState, command: CommitPrepared) -> None:
    """Raises CommitFailed if the micro-batch or a later one is committed (rule R2, I10)."""
    mark = command.mark
    newest = state.marks.get(mark.key) if mark is not None else None
    if mark is not None and newest is not None and mark.batch_id <= newest.batch_id:
        raise CommitFailed(
            f"batch {mark.batch_id} of query {mark.query_id} cannot be committed, because another "
            f"run has committed batch {newest.batch_id}. The replay tests decide what to do.",
            query_id=mark.query_id,
            batch_id=mark.batch_id,
            newest_batch_id=newest.batch_id,
        )


def _was_overtaken(expected: NewestMark) -> CommitFailed:
    """The error for a batch whose replay tests were applied to another mark (rule R60)."""
    return CommitFailed(
        f"another run has committed a batch under {expected.key!r} since the replay tests were "
        "applied. They decide again what to do.",
        key=expected.key,
    )


def _decide_abort(state: CoordinatorState, command: PrepareAbort) -> Decided:
    """ABORT is legal unless COMMIT is decided; it bars an unknown transaction (R3)."""
    known = _known(state, command.transactional_id)
    transaction = known.open.get(command.tx_id)
    decided = _outcome(state, known, command.tx_id)
    if decided is None and transaction is None and not command.undecided:
        require_remembered(state, command.tx_id)
    if decided is not None and decided.decision is Decision.COMMIT:
        raise IllegalTransition(
            f"transaction {command.tx_id} is decided: COMMIT. It can no longer be aborted; any "
            "process that meets it finishes it.",
            tx_id=str(command.tx_id),
        )
    if transaction is not None and transaction.state is TransactionState.ONGOING:
        epoch = known.epoch
        # A half transaction is aborted without a fence, which would abort all others of its
        # producer, too, and their local transactions may be committed.
        # The last epoch is not raised: only a new producer id follows it.
        if command.fence and epoch < EPOCH_MAX and transaction.check_back is None:
            epoch += 1
        at_ms = known.used_ms(command.now_ms)
        event = AbortPrepared(command.transactional_id, command.tx_id, at_ms, epoch)
        return Decided((event,))
    if transaction is not None or is_past(known, command.tx_id):
        return Decided()
    # The bar uses up the number, so that a PREPARE that is still under way is refused (R3).
    return Decided((TransactionBarred(command.transactional_id, command.tx_id, command.now_ms),))


def is_past(known: TransactionalId, tx_id: TxId) -> bool:
    """Whether the transaction can no longer prepare: its epoch is over, or its number is used
    (rule R4)."""
    is_current = _is_current(known, tx_id)
    return not is_current or tx_id.number <= known.begun_number


def _is_current(known: TransactionalId, tx_id: TxId) -> bool:
    """Whether the transaction is of the newest epoch. Raises CorruptData if its epoch was never
    registered: the coordinator's journal is older than the rest of the log, or objects are forged.
    """
    if tx_id.pid == known.pid and tx_id.epoch > known.epoch:
        raise CorruptData(
            f"transaction {tx_id} has an epoch that its coordinator has never registered: the "
            "coordinator's journal is older than the objects that name the transaction. If a part "
            "of this log was restored from a backup, restore all of it from the same backup.",
            tx_id=str(tx_id),
        )
    return (tx_id.pid, tx_id.epoch) == (known.pid, known.epoch)


def _decide_expiry(state: CoordinatorState, command: ExpireTransactionalId) -> Decided:
    """Forget an idle id, unless it is a Spark query's: its superseded runs may not return (R27),
    and only an operator can tell that the query will not (R2)."""
    known = state.ids.get(command.transactional_id)
    if known is None or known.open or known.is_run or known.updated_ms > command.before_ms:
        return Decided((), False)
    return Decided((TransactionalIdExpired(command.transactional_id),), True)


def _decide_complete(state: CoordinatorState, command: TransactionCompleted) -> Decided:
    transaction = state.open_transaction(command.transactional_id, command.tx_id)
    if transaction is None:
        return Decided()
    if transaction.state not in PREPARED:
        raise InternalError(
            f"transaction {command.tx_id} is {transaction.state} and cannot be complete. "
            "Please report this."
        )
    at_ms = state.ids[command.transactional_id].used_ms(command.at_ms)
    return Decided((replace(command, at_ms=at_ms),))
