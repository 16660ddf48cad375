"""Holds records: topics, partitions, segments and what a reader may see of them."""
