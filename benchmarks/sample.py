"""The measured records: 100 bytes each, hard to compress, the same in every run."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

VALUE_BYTES = 100
KEYS = 1_000


def values(count: int, seed: int = 7) -> list[bytes]:
    """Values of 100 bytes."""
    text = np.random.default_rng(seed).bytes(count * VALUE_BYTES)
    return [text[start : start + VALUE_BYTES] for start in range(0, len(text), VALUE_BYTES)]


def keys(count: int) -> list[bytes]:
    """1,000 different keys of 8 bytes, in addition to the 100 bytes."""
    return [b"key-%04d" % (number % KEYS) for number in range(count)]


def keyed_table(count: int) -> pa.Table:
    """Records of a Kafka-shaped topic."""
    return pa.table({"key": keys(count), "value": values(count)})
