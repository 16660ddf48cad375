"""What each process of a Spark cluster sees of a log, for `txlog doctor --spark`."""
