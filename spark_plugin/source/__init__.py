"""The streaming and batch source: offsets, plans, and the tasks that read."""
