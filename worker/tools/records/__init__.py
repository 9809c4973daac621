"""`inference-worker records`: a mapping of records proposed from a sample, and tried without Kafka."""
