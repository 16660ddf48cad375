"""Drills: points at which a job stops to be killed, their hooks, and the job of `txlog drill`."""
