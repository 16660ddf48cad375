"""Remembers positions: the committed and pending offsets of consumer groups."""
