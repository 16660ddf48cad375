"""`python -m tests.simulation`: the program of `make sim`, with the Spark plugin's scenarios."""

import sys

from tests.simulation.scenarios import SCENARIOS
from tests.simulator.campaign import main

if __name__ == "__main__":
    sys.exit(main(None, SCENARIOS, "python -m tests.simulation"))
