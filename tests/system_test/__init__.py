"""Kafka's own system test (`transactions_test.py`), rebuilt with processes that are really killed.

Records are copied from one topic to another, exactly once, by processes that are killed, stopped
and replaced, while a reader at `read_committed` reads the output. `python -m
tests.system_test --help` explains how to run it.
"""
