"""The commands on topics, groups, transactions and records, one file a noun or verb."""
