"""`inference-worker profile`: what batching buys on a device, and what to set."""
