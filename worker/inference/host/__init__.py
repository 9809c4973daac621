"""The process that has the model, and the worker's side of it. Only `child.py` and what it imports load a model."""
