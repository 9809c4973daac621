"""What a model is tried with before requests come, and what that shows."""
