"""Everything that talks to Kafka. Nothing else imports confluent_kafka."""

from worker.kafka.client_config import poll_interval
from worker.kafka.membership import Membership
from worker.kafka.sink import KafkaSink
from worker.kafka.source import KafkaSource
from worker.kafka.topics import Topics, examine
from worker.kafka.transactional_id import cost_of_a_kill, resolve_transactional_id
from worker.kafka.transactions import KafkaTransactions

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
