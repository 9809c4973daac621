"""The one thread of control, and what it decides between a record and its answer."""
