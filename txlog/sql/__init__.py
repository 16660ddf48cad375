"""SQL over the topics of a log, by DuckDB."""
