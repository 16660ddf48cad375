"""`txlog sql`."""
