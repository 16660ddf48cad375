"""One client program on a real broker of Kafka and on `txlog kafka`: nothing may differ outside the
tables of docs/kafka-users.md."""
