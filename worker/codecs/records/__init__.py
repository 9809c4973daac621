"""Records in the loop's process: their fields become the inputs of a model, and its answers become records."""
