"""The producer: sends, flushes, transactions, and records staged for them."""
