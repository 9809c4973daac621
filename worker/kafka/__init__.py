"""Everything that talks to Kafka. Nothing else imports confluent_kafka."""

from worker.kafka.client.config import poll_interval
from worker.kafka.cluster.topics import Topics, examine
from worker.kafka.consumer.membership import Membership
from worker.kafka.consumer.source import KafkaSource
from worker.kafka.producer.sink import KafkaSink
from worker.kafka.transactions.transactional_id import cost_of_a_kill, resolve_transactional_id
from worker.kafka.transactions.transactions import KafkaTransactions

__all__ = [
    "KafkaSink",
    "KafkaSource",
    "KafkaTransactions",
    "Membership",
    "Topics",
    "cost_of_a_kill",
    "examine",
    "poll_interval",
    "resolve_transactional_id",
]
