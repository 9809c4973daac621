"""The one thread of control, and its decisions between a record and its answer."""
