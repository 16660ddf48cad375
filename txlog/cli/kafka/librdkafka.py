"""What `txlog import kafka` and `txlog export --bootstrap` share: librdkafka and its settings."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from txlog.distribution import install_command
from txlog.errors import UsageError


def require_librdkafka() -> None:
    """Raises UsageError if it is not installed."""
    if importlib.util.find_spec("confluent_kafka") is None:
        raise UsageError(f"This needs confluent-kafka; run {install_command('kafka')}.")


def client_settings(path: Path | None) -> dict[str, str]:
    """The lines `name=value` of a file, as Kafka's programs read it. Raises UsageError."""
    if path is None:
        return {}
    try:
        lines = [line.strip() for line in path.read_text().splitlines()]
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}.") from error
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    return {name.strip(): value.strip() for name, _, value in pairs}
