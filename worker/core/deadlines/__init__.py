"""Until when an answer is useful, and who can still get one in time."""
