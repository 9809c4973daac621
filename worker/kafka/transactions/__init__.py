"""Answers out exactly once: one transactional producer, and the thread that ends its transactions."""
