"""Checks of a history: everything that a log may not do."""
