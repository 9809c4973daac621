"""What every client of Kafka has in common: configuration, names, log, statistics, errors, login, first contact."""
