"""The test kit for stores and for programs that use txlog. No product module imports it."""
