"""S3: its buckets, options, credentials and failures."""
