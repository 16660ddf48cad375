"""The producer: idempotent and transactional sends, flushes, and what stages them."""
