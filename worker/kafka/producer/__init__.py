"""Answers out at least once: one idempotent producer, and the proof that its messages are durable."""
