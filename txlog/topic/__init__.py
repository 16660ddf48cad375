"""A topic: its events, state and rules, and the log that records and markers go into."""
