"""Facts of stored journals and topics, which the invariants are checked against."""
