"""The boundary of a journal: what was pruned, and how long a reader may trust what it knows."""
