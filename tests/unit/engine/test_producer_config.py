"""The producer's configuration: defaults, borders, and which values contradict each other."""

import logging
from typing import Any

import pytest

from txlog.engine.producer_config import BUFFER_BYTES_MAX, ProducerConfig
from txlog.errors import InvalidConfig

LONGEST_MS = 900_000


def test_defaults_are_kafkas_or_documented() -> None:
    assert ProducerConfig() == ProducerConfig(
        transactional_id="",
        enable_idempotence=True,
        transaction_timeout_ms=60_000,
        transaction_records="staged",
        commit_returns="visible",
        transaction_group="",
        buffer_memory=33_554_432,
        acks="all",
        retries=2_147_483_647,
        max_in_flight_requests_per_connection=5,
        delivery_timeout_ms=120_000,
    )


@pytest.mark.parametrize(
    ("name", "lowest", "highest"),
    [
        ("transaction.timeout.ms", 1, LONGEST_MS),
        ("buffer.memory", 1, BUFFER_BYTES_MAX),
        ("retries", 1, None),
        ("max.in.flight.requests.per.connection", 1, 5),
        ("delivery.timeout.ms", 1, None),
    ],
)
def test_number_is_accepted_up_to_its_borders(name: str, lowest: int, highest: int | None) -> None:
    ProducerConfig.from_dotted({name: lowest})
    with pytest.raises(InvalidConfig, match="retries" if name == "retries" else name):
        ProducerConfig.from_dotted({name: lowest - 1})
    if highest is not None:
        ProducerConfig.from_dotted({name: highest})
        with pytest.raises(InvalidConfig, match=name):
            ProducerConfig.from_dotted({name: highest + 1})


def test_producer_without_idempotence_has_other_borders() -> None:
    values: dict[str, Any] = {"enable.idempotence": False, "retries": 0, "acks": "0"}
    found = ProducerConfig.from_dotted({**values, "max.in.flight.requests.per.connection": 6})
    assert (found.retries, found.acks, found.max_in_flight_requests_per_connection) == (0, "0", 6)
    with pytest.raises(InvalidConfig, match="retries is -1; it must be at least 0"):
        ProducerConfig.from_dotted({**values, "retries": -1})


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("acks", ("all", "-1")),
        ("transaction.records", ("staged", "in.log")),
        ("commit.returns", ("visible", "decided")),
    ],
)
def test_word_is_one_of_a_list(name: str, allowed: tuple[str, ...]) -> None:
    for word in allowed:
        assert getattr(ProducerConfig.from_dotted({name: word}), name.replace(".", "_")) == word
    with pytest.raises(InvalidConfig, match=f"{name} is 'x'; it must be one of {allowed[0]}, "):
        ProducerConfig.from_dotted({name: "x"})


def test_transactional_id_is_checked_and_needs_idempotence() -> None:
    with pytest.raises(InvalidConfig, match=r"transactional\.id needs enable\.idempotence=true"):
        ProducerConfig(transactional_id="a", enable_idempotence=False)
    with pytest.raises(Exception, match="transactional"):
        ProducerConfig(transactional_id="\n")


@pytest.mark.parametrize("acks", [0, 1, "0", "1"])
def test_values_that_idempotence_refuses_turn_it_off_unless_it_is_asked_for(
    acks: object, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        found = ProducerConfig.from_user({"acks": acks})
    assert (found.enable_idempotence, found.acks) == (False, str(acks))
    assert f"the producer is not idempotent, which would need acks=all, not {acks}" in caplog.text
    with pytest.raises(InvalidConfig, match=f"needs acks=all, not {acks}; change that"):
        ProducerConfig.from_user({"acks": acks, "enable.idempotence": True})
    with pytest.raises(InvalidConfig, match=f"producer, and that needs acks=all, not {acks}"):
        ProducerConfig.from_user({"acks": acks, "transactional.id": "a"})
    given = ProducerConfig.from_user({"acks": acks, "enable.idempotence": False})
    assert not given.enable_idempotence


def test_no_retries_turn_idempotence_off() -> None:
    found = ProducerConfig.from_user({"retries": 0, "buffer.memory": 7})
    assert (found.enable_idempotence, found.retries, found.buffer_memory) == (False, 0, 7)
    with pytest.raises(InvalidConfig, match="needs retries above 0"):
        ProducerConfig.from_user({"retries": 0, "enable.idempotence": True})


@pytest.mark.parametrize("values", [{}, {"acks": "all"}, {"acks": -1}, {"retries": 1}])
def test_producer_is_idempotent_if_the_other_values_allow_it(values: dict[str, object]) -> None:
    found = ProducerConfig.from_user(values)
    assert found.enable_idempotence
    assert found.acks == str(values.get("acks", "all"))
    transactional = ProducerConfig.from_user({**values, "transactional.id": "a"})
    assert (transactional.transactional_id, transactional.enable_idempotence) == ("a", True)


def test_too_many_requests_in_flight_are_refused_whatever_else_is_given() -> None:
    """As in Kafka 4: they do not turn idempotence off."""
    name = "max.in.flight.requests.per.connection"
    for others in ({}, {"acks": "1"}, {"retries": 0}):
        with pytest.raises(InvalidConfig, match=f"{name} is 6, and an idempotent producer"):
            ProducerConfig.from_user({name: 6, **others})
    found = ProducerConfig.from_user({name: 6, "enable.idempotence": False})
    assert found.max_in_flight_requests_per_connection == 6
