"""The boundary of a journal: pruning below it, and how long a reader may trust a check of it."""
