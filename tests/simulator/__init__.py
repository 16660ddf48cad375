"""A simulated world: one seed, one history of many processes on a log (docs/dev/simulation.md)."""
