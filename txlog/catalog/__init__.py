"""The catalog: which topics exist, the log's own file, and what Spark's tasks are given of it."""
