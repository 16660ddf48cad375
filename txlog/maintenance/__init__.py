"""Maintenance: retention, expiry, and the deletion of what nothing refers to."""
