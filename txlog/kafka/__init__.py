"""Kafka's protocol over a log: what its clients send and get, and nothing that they do not see."""
