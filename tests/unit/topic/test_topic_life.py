"""A topic from its opening to its end: horizon, partitions, schemas (R11, R17)."""

import pytest

from tests.unit.machine_without_journal import MachineHarness
from tests.unit.segments import segment
from tests.unit.topic_commands import COMMIT, OPENED, append, ends, marker, plain
from txlog.errors import (
    InternalError,
    InvalidConfig,
    InvalidRecord,
    PublishContention,
    SegmentExpired,
    UnknownTopic,
)
from txlog.model import TxId
from txlog.settings import TopicConfig
from txlog.topic.events import (
    AddPartitions,
    AdvanceHorizon,
    AdvanceLogStart,
    AlterConfig,
    AppendBatches,
    CloseTopic,
    EvolveSchema,
    RetireProducers,
    SealIndex,
    TopicOpened,
)
from txlog.topic.machine import TopicMachine
from txlog.topic.state import TopicState

# The horizon, the journal's life, configuration.


def with_id(name: str) -> AppendBatches:
    return AppendBatches((segment({0: 1}, name),))


def test_R17_a_segment_below_the_staging_horizon_is_refused(
    topic: MachineHarness[TopicState],
) -> None:
    topic.run(AdvanceHorizon("0005"))
    with pytest.raises(SegmentExpired, match="again under a new name"):
        topic.run(with_id("0004f"))
    for fine in ("0005", "00050", "0006"):
        topic.run(with_id(fine))


def test_R17_the_horizon_only_rises(topic: MachineHarness[TopicState]) -> None:
    topic.run(AdvanceHorizon("0005"))
    slot = topic.slot
    topic.run(AdvanceHorizon("0004"))
    topic.run(AdvanceHorizon("0005"))
    assert (topic.state.horizon, topic.slot) == ("0005", slot)


def test_decided_transaction_is_applied_even_below_the_horizon(
    topic: MachineHarness[TopicState],
) -> None:
    """Its PREPARE_COMMIT protects the segments: refusing them now would commit only part of it."""
    topic.run(AdvanceHorizon("0005"))
    assert topic.run(marker(TxId(1, 0, 0), COMMIT, segments=(segment({0: 1}, "0001"),))) is not None


def test_R11_deleted_topic_rejects_all_writes(topic: MachineHarness[TopicState]) -> None:
    topic.run(append({0: 1}, tx=TxId(1, 0, 0)))
    topic.run(CloseTopic())
    before = topic.state
    with pytest.raises(UnknownTopic, match="deleted while it was in use"):
        topic.run(plain({0: 1}))
    assert topic.run(marker(TxId(1, 0, 0), COMMIT, segments=(segment({0: 1}),))) is None
    assert topic.run(CloseTopic()) is None
    assert topic.run(OPENED) is None
    for command in (
        AddPartitions(9),
        EvolveSchema("s", 0),
        AlterConfig(TopicConfig("lz4"), before.config),
    ):
        with pytest.raises(UnknownTopic):
            topic.run(command)
    assert topic.state == before


def test_commands_without_effect_write_no_entry(topic: MachineHarness[TopicState]) -> None:
    topic.run(AdvanceLogStart({0: 0}))
    topic.run(SealIndex())
    topic.run(RetireProducers((7,), 1))
    assert topic.slot == 1, "only its opening"
    topic.run(CloseTopic())
    topic.run(CloseTopic())
    assert topic.slot == 2


def test_opening_a_topic_again_changes_nothing(topic: MachineHarness[TopicState]) -> None:
    before = topic.state
    topic.run(TopicOpened("fedcba9876543210", "t", 9, "schema", TopicConfig()))
    assert topic.state == before


def test_append_to_a_journal_that_was_never_opened_is_refused() -> None:
    with pytest.raises(InternalError, match="never opened"):
        MachineHarness(TopicMachine()).run(plain({0: 1}))


@pytest.mark.parametrize("partition", [-1, 3, 99])
def test_append_to_unknown_partition_is_refused(
    topic: MachineHarness[TopicState], partition: int
) -> None:
    with pytest.raises(InvalidRecord, match="partitions 0 to 2"):
        topic.run(plain({0: 1, partition: 1}))
    assert ends(topic) == [0, 0, 0]


def test_partition_count_only_grows_up_to_its_maximum(topic: MachineHarness[TopicState]) -> None:
    topic.run(AddPartitions(5))
    assert topic.run(plain({4: 2})).base_offsets == {4: 0}
    topic.run(AddPartitions(5))
    for count in (4, 0, -1, 10_001):
        with pytest.raises(InvalidConfig, match="only grows"):
            topic.run(AddPartitions(count))
    assert len(topic.state.partitions) == 5
    topic.run(AddPartitions(10_000))
    assert len(topic.state.partitions) == 10_000


def test_schema_evolves_only_from_the_newest_one(topic: MachineHarness[TopicState]) -> None:
    assert topic.run(EvolveSchema("schema 1", 0)) == 1
    assert topic.run(EvolveSchema("schema 1", 0)) == 1, "another process made the same change"
    with pytest.raises(PublishContention):
        topic.run(EvolveSchema("schema 2", 0))
    assert topic.run(EvolveSchema("schema 2", 1)) == 2
    assert list(topic.state.schemas.values()) == ["schema 0", "schema 1", "schema 2"]


def test_segment_with_unknown_schema_id_is_refused(topic: MachineHarness[TopicState]) -> None:
    wrong = segment({0: 1})
    with pytest.raises(InternalError, match="schema 1"):
        topic.run(AppendBatches((type(wrong)(wrong.path, 1, wrong.batches),)))


def test_repeated_configuration_change_writes_no_entry(topic: MachineHarness[TopicState]) -> None:
    topic.run(AlterConfig(TopicConfig("lz4"), topic.state.config))
    slot = topic.slot
    topic.run(AlterConfig(TopicConfig("lz4"), topic.state.config))
    assert (topic.state.config.compression_type, topic.slot) == ("lz4", slot)


def test_closed_topic_keeps_schemas_and_partitions_but_no_tail(
    topic: MachineHarness[TopicState],
) -> None:
    topic.run(plain({0: 2}))
    before = topic.state
    topic.run(CloseTopic())
    assert (topic.state.schemas, topic.state.partitions) == (before.schemas, before.partitions)
    assert (topic.state.tail, topic.state.closed) == ((), True)
