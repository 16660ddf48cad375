"""A folder of a local disk as a store."""
