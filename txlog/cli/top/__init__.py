"""`txlog top`: the log live in a terminal."""
