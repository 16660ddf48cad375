"""What commands print: tables, JSON, progress, and files of records."""
