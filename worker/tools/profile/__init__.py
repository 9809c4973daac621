"""`inference-worker profile`: measures a model without Kafka, and advises on a worker's batches."""
