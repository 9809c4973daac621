"""A model's inputs and outputs, rows joined into one array, and shapes that are padded to share it."""
