"""`txlog kafka`."""
