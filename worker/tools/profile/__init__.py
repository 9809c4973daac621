"""A model measured alone, without Kafka, and what follows for a worker's batches."""
