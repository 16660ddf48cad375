"""Several processes, any order of steps, crashes between any two: I1 to I11 hold after each step.

A new process reads the log again and again. The test compares what users see (records by offset,
the group's position, the outcomes of transactions) and, by `check_log`, every stored byte.
"""

import random

import hypothesis
import pytest
from hypothesis import strategies as st

from tests.examples import examples
from tests.protocol.interleaving import STORM, WEIGHTS, Interleaving

STEPS = 150
CHECK_EVERY = 5
SHORT = 30
"""The number of steps of a history in which hypothesis makes every choice, so that it can shrink
it."""


@pytest.mark.parametrize("weights", [WEIGHTS, STORM], ids=["calm", "storm"])
@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 10))]
)
def test_I1_to_I11_hold_in_random_interleavings(seed: int, weights: dict[str, int]) -> None:
    history = Interleaving(random.Random(seed))
    try:
        history.run(STEPS, CHECK_EVERY, weights)
    except BaseException:
        print(f"seed {seed}:", *history.trace, sep="\n")
        raise


@pytest.mark.slow
@hypothesis.settings(
    max_examples=examples(30),
    suppress_health_check=[
        hypothesis.HealthCheck.too_slow,
        hypothesis.HealthCheck.data_too_large,
        hypothesis.HealthCheck.large_base_example,
    ],
)
@hypothesis.given(st.randoms(use_true_random=False), st.sampled_from([WEIGHTS, STORM]))
def test_I1_to_I11_hold_in_interleavings_chosen_by_hypothesis(
    choices: random.Random, weights: dict[str, int]
) -> None:
    history = Interleaving(choices)
    try:
        history.run(SHORT, CHECK_EVERY, weights)
    finally:
        hypothesis.note("\n".join(history.trace))
    hypothesis.target(float(sum(history.counts.values())))
