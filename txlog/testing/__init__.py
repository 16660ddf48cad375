"""The test kit for stores and protocols. It ships with the package; no product module imports
it."""
