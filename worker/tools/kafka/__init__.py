"""Kafka as the tools use it: a publisher, a reader without a group, topics of their own, a broker for the demo."""
