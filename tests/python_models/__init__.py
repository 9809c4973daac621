"""Models in Python that tests serve."""
