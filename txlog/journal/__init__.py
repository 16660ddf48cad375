"""Orders events: numbered entries, each won once by creating its file."""
