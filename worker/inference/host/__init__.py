"""The model's process, and the worker's end of it."""
