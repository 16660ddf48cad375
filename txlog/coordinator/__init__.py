"""Decides transactions: states, epochs, two-phase commit and recovery by anyone."""
