"""A soak: many producers, copiers and readers on one log for a long time, as processes.

Speed, memory and open files are watched from outside, and at the end every record must have come
through once and in order. `python -m txlog.testing.soak --help` says how to run it.
"""
