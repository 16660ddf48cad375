"""The test kit for stores and protocols: shipped, and imported by nothing in the product."""
