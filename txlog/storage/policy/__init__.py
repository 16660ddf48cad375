"""What holds for every store: retries, read-back after an unknown outcome, and the probe."""
