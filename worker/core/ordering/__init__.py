"""Records that are owed an answer, the order in which answers leave, and how far a commit may go."""
