"""Records on their way into segments: partitions, columns, batches, and their delivery."""
