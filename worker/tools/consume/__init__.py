"""`inference-worker consume`: shows the records of a topic."""
