"""The clients: the producer, the consumer and the admin, in Kafka's words."""
