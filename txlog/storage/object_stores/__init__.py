"""Object stores behind obstore and fsspec, and what they have in common."""
