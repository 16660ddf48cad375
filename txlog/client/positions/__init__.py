"""Positions as users name them: offsets, times, resets and subscriptions."""
