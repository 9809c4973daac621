"""`inference-worker consume`: what the records of a topic say."""
