"""A settings file to begin with, for the model at hand."""
