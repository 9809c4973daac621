"""A model's inputs and outputs, rows joined into one array, and shapes padded so that rows can share it."""
