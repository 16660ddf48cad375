"""A topic's index: where each batch of records is."""
