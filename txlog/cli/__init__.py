"""The `txlog` command, one file a noun; needs the extra `cli`."""
