"""`inference-worker score`: answers a file without Kafka, with the worker's own codecs, batches and checks."""
