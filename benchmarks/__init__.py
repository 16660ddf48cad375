"""Measurements of txlog beside what it is made of and what a user would take instead."""
