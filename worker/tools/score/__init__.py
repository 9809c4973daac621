"""Inference over a file, without Kafka: chunk by chunk through the worker's own codecs, batches and checks."""
