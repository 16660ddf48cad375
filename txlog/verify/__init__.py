"""Verification: what a log must hold, read from its stored bytes."""
