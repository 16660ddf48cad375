"""Each rule is needed: without it the interleavings find a history that breaks an invariant.

A rule is removed by substituting the code that one would write without it. If no history of the
seeds tried here fails then, the interleavings prove less than they should.
"""

import random
from collections.abc import Callable

import pytest

from tests.protocol.interleaving import STORM, WEIGHTS, Interleaving
from tests.protocol.removed_rules import (
    without_I6_compare,
    without_I6_pending,
    without_I7,
    without_I8,
    without_R3_bar,
    without_R3_release_before_abort,
    without_R5_before_begin,
    without_R5_before_init,
    without_R6_in_groups,
    without_R6_in_topics,
    without_R7,
    without_R8,
    without_R9,
    without_R10_record,
    without_R10_refusal,
    without_R15_for_readers,
    without_R15_for_writers,
)
from txlog.errors import TxlogError

pytestmark = pytest.mark.slow

SEEDS = 40
Patch = pytest.MonkeyPatch

REMOVED: dict[Callable[[Patch], None], int] = {
    without_R15_for_writers: 5,
    without_R15_for_readers: 41,
    without_I7: 10,
    without_R3_release_before_abort: 0,
    without_R3_bar: 1,
    without_R5_before_begin: 14,
    without_R5_before_init: 0,
    without_R6_in_topics: 3,
    without_R6_in_groups: 17,
    without_R7: 16,
    without_R8: 11,
    without_R9: 71,
    without_R10_record: 0,
    without_R10_refusal: 1,
    without_I6_compare: 46,
    without_I6_pending: 0,
    without_I8: 6,
}
"""Each with a seed whose history fails early: it is tried first, because the search takes long."""


def breaks(seed: int) -> bool:
    """Whether the history of that seed fails, by a broken invariant or by an impossible error."""
    try:
        Interleaving(random.Random(seed)).run(150, 5, STORM if seed % 2 else WEIGHTS)
    except (AssertionError, TxlogError, KeyError):
        return True
    return False


@pytest.mark.parametrize("remove", REMOVED, ids=lambda remove: remove.__name__)
def test_removing_a_rule_breaks_some_interleaving(
    remove: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    remove(monkeypatch)
    assert any(breaks(seed) for seed in (REMOVED[remove], *range(SEEDS)))
