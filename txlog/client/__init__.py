"""The clients, in Kafka's words: producer, consumer, admin, and half messages."""
