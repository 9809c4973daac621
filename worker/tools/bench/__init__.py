"""A worker under load, measured from outside: through Kafka, as its publishers see it."""
