"""A replica of a journal: it follows entries, and appends its own in turn."""
