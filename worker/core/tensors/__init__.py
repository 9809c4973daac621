"""What a model takes and gives, rows joined into one array, and shapes that are padded to share it."""
