"""Records before they are in segments: preparation, partitions, batches, appends."""
