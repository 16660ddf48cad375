"""Planted bugs in the manifests of large transactions (R66, R67)."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tests.simulation.planted_bugs.mutant import Patch
from txlog.backup import log_copy
from txlog.engine import large_transactions
from txlog.errors import TxlogError
from txlog.layout import segment_id_of
from txlog.maintenance import vacuum
from txlog.topic import topic_log
from txlog.topic.manifest import Manifest
from txlog.topic.topic_log import TopicLog


def _decided_without_R66(patch: Patch) -> None:
    """What a decision names is referenced; what its manifests name is not."""

    def staged_objects(_: Any, state: Any) -> Iterator[str]:
        return (segment.path for _, _, segment in vacuum.staged_segments(state))

    patch.setattr(vacuum, "staged_objects", staged_objects)
    patch.setattr(log_copy, "staged_objects", staged_objects)


def _stored_without_R66(patch: Patch) -> None:
    """What an index names is referenced; what its manifests name is not."""
    patch.setattr(
        vacuum,
        "_objects_of",
        lambda topic, state, rows: (row.segment for row in rows if row.record_count),
    )


def _named_by_the_newest(patch: Patch) -> None:
    """A manifest is named with the time of its newest segment."""
    original = topic_log.manifest_of

    def manifest_of(layout: Any, segments: Any) -> tuple[Manifest, bytes]:
        manifest, data = original(layout, segments)
        newest = max(segment_id_of(segment.path) for segment in segments)
        drawn = segment_id_of(manifest.path)[12:]
        return replace(manifest, path=layout.manifest(newest[:12] + drawn)), data

    patch.setattr(topic_log, "manifest_of", manifest_of)


def _decided_before_it_is_stored(patch: Patch) -> None:
    """The decision does not wait for the uploads of its manifests."""
    original = TopicLog.encode_manifest

    def encode_manifest(self: TopicLog, segments: Any) -> tuple[Manifest, Callable[[], None]]:
        manifest, write = original(self, segments)

        def begin() -> None:
            with suppress(TxlogError):
                write()

        return manifest, begin

    patch.setattr(TopicLog, "encode_manifest", encode_manifest)


def _size_not_asked(patch: Patch) -> None:
    """Decision and marker are taken to fit their entries."""
    patch.setattr(large_transactions, "_stored_bytes", lambda segment: -1_000_000)


_LARGE = "tests/unit/engine/test_large_transactions.py::"

BUGS_OF_MANIFESTS: Mapping[str, tuple[Callable[[Patch], None], str]] = {
    "what a decided manifest names is not referenced (R66)": (
        _decided_without_R66,
        f"{_LARGE}test_R18_R66_vacuum_keeps_what_a_decided_manifest_names",
    ),
    "what a stored manifest names is not referenced (R66)": (
        _stored_without_R66,
        f"{_LARGE}test_R66_vacuum_keeps_what_the_parts_of_a_topic_name",
    ),
    "manifest has the time of its newest segment (R66)": (
        _named_by_the_newest,
        f"{_LARGE}test_R42_R66_manifest_of_an_expired_segment_is_refused",
    ),
    "decision before its manifests are stored (R67)": (
        _decided_before_it_is_stored,
        f"{_LARGE}test_R67_decision_is_sent_after_its_manifests_are_stored",
    ),
    "size of decision and marker not asked (R67)": (
        _size_not_asked,
        f"{_LARGE}test_R67_what_fits_no_entry_is_refused_before_the_decision",
    ),
}
"""Planted bug -> the function that plants it, and the test that detects it."""
