"""Topics as one Arrow dataset, for pyarrow, DuckDB, Polars and DataFusion."""
