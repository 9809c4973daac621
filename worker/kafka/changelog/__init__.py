"""The states of keys in Kafka: read back when a partition comes, from its own one of a compacted topic."""
