"""`inference-worker state`: what the model remembers of each key, looked at, saved, brought back and forgotten."""
