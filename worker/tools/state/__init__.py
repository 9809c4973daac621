"""`inference-worker state`: shows, exports, imports and resets the states that a model keeps for its keys."""
