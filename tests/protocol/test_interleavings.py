"""Several processes, any order of steps, crashes between any two: I1 to I11 hold after each.

The log is read by a fresh process again and again. What is compared is what users see (records by
offset, the group's position, how transactions ended) and, by `check_log`, every stored byte.
"""

import pytest

from tests.protocol.interleaving import Interleaving

SEEDS = range(16)


@pytest.mark.parametrize("seed", SEEDS)
def test_I1_to_I11_hold_in_every_interleaving(seed: int) -> None:
    history = Interleaving(seed)
    try:
        history.run(steps=150, check_every=5)
    except BaseException:
        print(f"seed {seed}:", *history.trace, sep="\n")
        raise
