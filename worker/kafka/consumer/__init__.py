"""Requests in: one consumer in a group, polled, and which of its partitions may give records."""
