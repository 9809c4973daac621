"""The worker's Kafka code: nothing else that `run` reaches imports confluent_kafka.

| room | what it is for |
|---|---|
| `changelog` | restores the states of keys, for a model that has state |
| `consumer` | requests in: the consumer, its polls, and the partitions that may give records |
| `transactions` | answers out exactly once: the transactional producer, and the thread that ends its transactions |
| `offsets` | the group's offset of each partition, read and written only here |
| `producer` | answers out at least once: the idempotent producer, and the proof that its messages are durable |
| `cluster` | the cluster before the group is joined: topics, limits, rights, losses |
| `client` | what every client has in common: configuration, names, log, statistics, errors, login, first contact |

A room never imports a room above it.
"""
