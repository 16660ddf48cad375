"""The streaming and batch sink: staged rows, and a micro-batch's commit."""
