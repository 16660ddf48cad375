"""Topics copied between a log and a Kafka cluster, in both directions."""
