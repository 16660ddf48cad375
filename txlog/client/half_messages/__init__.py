"""RocketMQ's transactional messages: half messages, checks, and dead letters."""
