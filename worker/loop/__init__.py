"""The loop's thread, and its decisions between a record and its answer."""
