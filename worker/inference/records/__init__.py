"""Records in the model's process: they are prepared for the model, and its outputs become the fields of an answer."""
