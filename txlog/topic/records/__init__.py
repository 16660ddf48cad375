"""Records as they are stored: batches, columns, schemas, and segments in the Arrow IPC format."""
