"""A soak test: many producers, copiers and readers use one log for a long time, as processes.

Speed, memory and open files are measured from outside, and at the end every record must have been
read once and in order. `python -m tests.soak --help` explains how to run it.
"""
