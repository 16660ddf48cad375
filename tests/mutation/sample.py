"""A sample of a module's mutants, and what it says about all of them."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

NORMAL_QUANTILE = 1.96
"""Of 97.5 %: 95 of 100 intervals contain the share that they are about."""


@dataclass(frozen=True)
class Sample:
    """Which mutants of a module are tried."""

    count: int | None = None
    """How many at most; None: all."""
    seed: int = 0

    def of(self, mutants: Sequence[str]) -> set[str]:
        """Choose at equal distances. Mutants stand in the order of the code, so each function gives
        its part; the seed moves the whole row."""
        if self.count is None or self.count >= len(mutants):
            return set(mutants)
        distance = len(mutants) / self.count
        first = random.Random(self.seed).random()
        return {mutants[int((first + number) * distance)] for number in range(self.count)}


ALL = Sample()


def interval(killed: int, tried: int) -> tuple[float, float]:
    """The 95 % interval (Wilson's) of the share of all mutants that the tests kill, if `tried` were
    chosen at random and `killed` of these were killed."""
    if not tried:
        return 0.0, 1.0
    share, square = killed / tried, NORMAL_QUANTILE**2
    middle = share + square / (2 * tried)
    width = NORMAL_QUANTILE * math.sqrt(share * (1 - share) / tried + square / (4 * tried**2))
    low, high = (middle - width) / (1 + square / tried), (middle + width) / (1 + square / tried)
    return max(low, 0.0), min(high, 1.0)
