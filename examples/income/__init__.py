"""Orders -> income per minute, exactly once: as a plain Python loop, and as a Spark job.

`python -m examples.income.orders` makes the orders up, `loop.py` and `job.py` are the two programs,
and `python -m examples.income.delivery` shows at most once, at least once and exactly once side by
side, each killed at the same points. docs/example-income.md describes all of them.
"""
