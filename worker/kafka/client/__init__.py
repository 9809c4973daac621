"""What every client of Kafka has in common: configuration, log, statistics, errors, login, first contact."""
