"""Answers out at least once: one idempotent producer, and which of its messages are durable."""
