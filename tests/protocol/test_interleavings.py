"""Several processes, any order of steps, crashes between any two: I1 to I11 hold after each.

The log is read by a fresh process again and again. What is compared is what users see (records by
offset, the group's position, how transactions ended) and, by `check_log`, every stored byte.
"""

import pytest

from tests.protocol.interleaving import STORM, WEIGHTS, Interleaving

STEPS = 150
CHECK_EVERY = 5


@pytest.mark.parametrize("weights", [WEIGHTS, STORM], ids=["calm", "storm"])
@pytest.mark.parametrize("seed", range(14))
def test_I1_to_I11_hold_in_every_interleaving(seed: int, weights: dict[str, int]) -> None:
    history = Interleaving(seed)
    try:
        history.run(STEPS, CHECK_EVERY, weights)
    except BaseException:
        print(f"seed {seed}:", *history.trace, sep="\n")
        raise
