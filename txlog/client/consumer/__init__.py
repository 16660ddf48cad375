"""The consumer: assignment, polls, groups, and records as they are handed out."""
