"""Who still owes an answer, in which order answers leave, and how far a commit may go."""
