"""`python -m txlog.testing.sim`: simulated worlds from the command line; see docs/simulation.md."""

from __future__ import annotations

import sys

from txlog.testing.simulation.campaign import main
from txlog.testing.simulation.scenarios import SCENARIOS

if __name__ == "__main__":
    sys.exit(main(None, SCENARIOS, "python -m txlog.testing.sim"))
