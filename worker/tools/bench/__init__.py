"""`inference-worker bench`: measures a worker under load from outside, through Kafka, as its publishers see it."""
