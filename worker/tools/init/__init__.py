"""A settings file to begin with, for the model and the cluster at hand."""
