"""Writing to a log: connections, and the client's side of transactions."""
