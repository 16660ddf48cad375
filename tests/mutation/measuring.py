"""What tests see of mutmut: the mutant that they judge, or that it measures what they call."""

import os

VARIABLE = "MUTANT_UNDER_TEST"
MEASURED = "stats"


def is_mutated() -> bool:
    """Whether mutmut runs these tests."""
    return VARIABLE in os.environ


def measure_this_process_only() -> None:
    """Keep mutmut from measuring in processes that a test starts: each would look for mutmut's
    configuration in its own folder, and fail. mutmut itself knows without the variable. A mutant's
    name stays, so that these processes run the mutant, too."""
    if os.environ.get(VARIABLE) == MEASURED:
        del os.environ[VARIABLE]
