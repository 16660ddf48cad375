"""Rewriting a topic: compaction, merging, and retention."""
