"""`inference-worker init`: a first settings file for a model."""
