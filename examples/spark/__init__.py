"""Queries to copy, each run by one command: docs/spark.md."""
