"""What a worker does under load, measured from outside: through Kafka, as its publishers see it."""
