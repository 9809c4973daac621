"""`inference-worker dead-letters`: why requests were rejected, each one whole, and the way back."""
