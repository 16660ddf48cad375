"""A copy of a log as it was at one moment, while writers go on: `txlog backup`, `txlog restore`."""
