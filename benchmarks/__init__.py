"""Measurements of txlog, of the storage below it, and of its alternatives."""
