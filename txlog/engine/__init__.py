"""What clients and the Spark plugin write with: connections, and sessions of transactions."""
