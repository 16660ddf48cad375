"""`txlog exporter`."""
