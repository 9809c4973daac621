"""The common parts of every Kafka client: configuration, names, log, statistics, errors, login, first contact."""
