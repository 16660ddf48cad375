"""Spark's checkpoint as the plugin reads it: plans, commits, and a query's progress."""
