"""Requests in: one consumer in a group, its polls, and the partitions that may give records."""
