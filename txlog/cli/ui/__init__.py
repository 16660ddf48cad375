"""`txlog ui`."""
