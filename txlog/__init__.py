"""A transactional, Kafka-style log with no brokers, kept on any store that can put if absent."""
