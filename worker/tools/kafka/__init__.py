"""The tools' side of Kafka: a publisher, a reader without a group, temporary topics, a broker for the demo."""
