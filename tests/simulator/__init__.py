"""A simulated world: one seed, one history of many processes on one log (docs/simulation.md)."""
