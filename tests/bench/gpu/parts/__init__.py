"""One module for each part: its columns, and the cases that it is made of."""
