"""Reading a topic: records of a partition, and consistent cuts over topics."""
