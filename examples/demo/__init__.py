"""The whole of txlog on real data: two exactly-once Spark streams that are killed on the way.

`python -m examples.demo --root ROOT` (or `make demo`) produces the flights of 2013 into a log while
two streaming jobs work on them and are killed again and again, then proves record by record that
nothing was lost, doubled or torn. `delays_job.py` and `hourly_job.py` are self-contained:
`spark-submit` runs them, too.
"""
