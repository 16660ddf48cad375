"""Facts of stored journals and topics, against which the invariants are checked."""
