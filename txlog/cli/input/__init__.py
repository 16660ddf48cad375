"""Records from files: lines, JSON, CSV, Parquet and Arrow."""
