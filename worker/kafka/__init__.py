"""Everything of the worker that talks to Kafka: nothing else that `run` reaches imports confluent_kafka.

| room | what it is for |
|---|---|
| `consumer` | requests in: the consumer polled, and which partitions may give records |
| `transactions` | answers out exactly once: the transactional producer, and the thread that ends its transactions |
| `changelog` | the states of keys read back, for a model that has state |
| `offsets` | what the group stores for a partition, an offset and a note beside it: read and written here alone |
| `producer` | answers out at least once: the idempotent producer, and which of its messages are durable |
| `cluster` | the cluster before the group is joined: topics, limits, rights, versions |
| `client` | what every client has in common: configuration, names, log, statistics, errors, login, first contact |

A room imports none of those above it.
"""

from worker.kafka.changelog import ChangelogFacts, ChangelogRestorer, changelog_facts
from worker.kafka.client.config import poll_interval
from worker.kafka.client.membership import Announcement, Membership
from worker.kafka.client.transactional_id import cost_of_a_kill, resolve_transactional_id
from worker.kafka.cluster.examination import Topics, examine, others_since
from worker.kafka.cluster.losses import losses
from worker.kafka.consumer.source import KafkaSource
from worker.kafka.producer.sink import KafkaSink
from worker.kafka.transactions.kafka_transactions import KafkaTransactions

__all__ = [
    "Announcement",
    "ChangelogFacts",
    "ChangelogRestorer",
    "KafkaSink",
    "KafkaSource",
    "KafkaTransactions",
    "Membership",
    "Topics",
    "changelog_facts",
    "cost_of_a_kill",
    "examine",
    "losses",
    "others_since",
    "poll_interval",
    "resolve_transactional_id",
]
