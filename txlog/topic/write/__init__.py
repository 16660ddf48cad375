"""Writing to a topic: what its records may be, which partition each goes to, and their segments."""
