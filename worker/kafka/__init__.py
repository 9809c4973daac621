"""Everything of the worker that talks to Kafka: nothing else that `run` reaches imports confluent_kafka.

| room | what it is for |
|---|---|
| `changelog` | the states of keys read back, for a model that has state |
| `consumer` | requests in: the consumer polled, and which partitions may give records |
| `transactions` | answers out exactly once: the transactional producer, and the thread that ends its transactions |
| `offsets` | the group's offset of each partition and the note with it, read and written here alone |
| `producer` | answers out at least once: the idempotent producer, and which of its messages are durable |
| `cluster` | the cluster before the group is joined: topics, limits, rights, losses |
| `client` | what every client has in common: configuration, names, log, statistics, errors, login, first contact |

A room imports none of those above it.
"""
