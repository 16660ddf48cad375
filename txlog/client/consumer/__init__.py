"""The consumer: assignment, polls, groups, and the returned records."""
