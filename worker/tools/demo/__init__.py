"""`inference-worker demo`: two workers side by side, and the classifier of digits that they run."""
