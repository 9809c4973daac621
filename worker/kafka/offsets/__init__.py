"""What the group stores for a partition: its offset, and what is noted beside it."""
