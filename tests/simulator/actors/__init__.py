"""Actors of a simulated world: producers, readers, copiers, and those that disturb them."""
