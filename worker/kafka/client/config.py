"""The settings translated into librdkafka's dictionaries. Each value that is a choice has its reason.

The dictionaries hold secrets, so they are built last, handed to a client and dropped, and nothing logs them. The
operator's own keys come after ours and go to every client; a client ignores a key that it does not know. They may
override tuning, but no value on which a promise rests (`denied_keys`).
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from pydantic import SecretStr

from worker.kafka.client.membership import CLIENT_ID, Membership, of_this_host
from worker.settings import Connection, KafkaSettings

Config = dict[str, str | int | float | bool]

# Thirty times as long as a revoke may take. The watchdog ends a hung worker well before that.
MAX_POLL_INTERVAL_MS = 300_000

# Bytes of the largest unpacked batch, which one broker's thread holds. With the default limits 1 GiB is enough.
MOST_UNPACKED = 384_000_000

# The settings that secure connections, each with librdkafka's name for it.
SECURITY: Mapping[str, str] = {
    "security_protocol": "security.protocol",
    "ssl_ca_location": "ssl.ca.location",
    "ssl_certificate_location": "ssl.certificate.location",
    "ssl_key_location": "ssl.key.location",
    "ssl_key_password": "ssl.key.password",
    "sasl_mechanism": "sasl.mechanism",
    "sasl_username": "sasl.username",
    "sasl_password": "sasl.password",
    "oauth_token_endpoint_url": "sasl.oauthbearer.token.endpoint.url",
    "oauth_client_id": "sasl.oauthbearer.client.id",
    "oauth_client_secret": "sasl.oauthbearer.client.secret",
}

# Keys that an operator may not pass through, by the reason; a star stands for any text. Every other key is passed on.
_BREAKS = {
    "the worker alone decides which offsets are committed": (
        "enable.auto.commit enable.auto.offset.store auto.commit.* offset.store.* enable.partition.eof"
    ),
    "nothing is lost and nothing reordered only with the worker's own value": (
        "enable.idempotence enable.gapless.guarantee acks request.required.acks retries message.send.max.retries "
        "message.timeout.ms delivery.timeout.ms delivery.report.only.error check.crcs"
    ),
    "requests of aborted transactions must not be answered": "isolation.level",
    "answers with one key go where every Kafka client puts that key": "partitioner",
    "it makes the client load or run code": (
        "plugin.library.paths ssl.engine.location ssl.providers sasl.kerberos.kinit.cmd"
    ),
    "anybody could log in with a token of their own making": "enable.sasl.oauthbearer.unsecure.jwt",
    "the lag and the group's health are read there": "statistics.interval.ms",
    "its lines show what is in the records": "debug",
    "it is for tests of the client": "test.mock.* ut_*",
    "a callback cannot be configured": "*_cb on_commit logger opaque",
    "a setting of its own says it (docs/settings.md)": (
        "bootstrap.servers metadata.broker.list group.id group.instance.id group.protocol session.timeout.ms "
        "auto.offset.reset message.max.bytes transactional.id transaction.timeout.ms security.protocol "
        "sasl.mechanism sasl.mechanisms sasl.username sasl.password ssl.key.password sasl.oauthbearer.client.secret "
        "sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.token.endpoint.url "
        "enable.ssl.certificate.verification ssl.endpoint.identification.algorithm"
    ),
}
DENIED: Mapping[str, str] = {key: why for why, keys in _BREAKS.items() for key in keys.split()}


def denied_keys(kafka: Connection) -> list[str]:
    """One error line for each of the operator's keys that the worker refuses."""
    found = [(key, _why_denied(key)) for key in kafka.config]
    return [f"WORKER_KAFKA__CONFIG: {key} is not passed through, {why}; remove it" for key, why in found if why]


def _why_denied(key: str) -> str | None:
    # The client also takes a topic's key with this prefix: `topic.acks` is `acks`.
    key = key.removeprefix("topic.")
    return next((why for pattern, why in DENIED.items() if fnmatchcase(key, pattern)), None)


def consumer_config(kafka: KafkaSettings, membership: Membership) -> Config:
    """The configuration of the consumer; the worker commits its offsets itself."""
    return {
        **_shared_config(kafka),
        **_group_config(kafka, membership),
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": kafka.auto_offset_reset,
        "isolation.level": "read_committed",
        # After a wrong checksum librdkafka 2.16 reads on at a wrong place in the response: it went from offset 1 to
        # 33,554,433, and from there to the beginning (measured 2026-11). Brokers check records before they store them,
        # and TLS checks the network. Bits that a disk flips in an uncompressed record go unnoticed.
        "check.crcs": False,
        "allow.auto.create.topics": False,
        "max.poll.interval.ms": MAX_POLL_INTERVAL_MS,
        # They tell a stand-by replica that it is in the group, and operators the lag: 6 kB, 0.2 ms (measured 2026).
        "statistics.interval.ms": 1_000,
        # Records read ahead per partition: 250,000 records/s of 1 KiB in 11 MB. The client's default of 100,000 gives
        # 450,000 in 89 MB (measured 2026, four partitions). No model is that fast, and a rebalance drops these records.
        "queued.min.messages": 5_000,
        # Records read ahead in all, kB. The consumer's memory is this and one fetch from each broker.
        "queued.max.messages.kbytes": 32 * 1024,
        # With a full queue the client waits this long before it fetches again. The default of 1 s starves the loop:
        # 31,000-45,000 records/s of 1 KiB against 279,000-434,000 with 20 ms (measured 2026).
        "fetch.queue.backoff.ms": 20,
        # Compressed bytes. The client unpacks a whole fetch, and the first batch comes whatever its size. With 48
        # batches waiting that unpack to 45 MB each, it held 2,240 MB at 2 MiB and 1 MiB per partition, and 663 MB at
        # these limits (zstd; gzip: 725 and 192; measured 2026). Of the client's CPU 1 KiB rows take no more, 4 KiB rows
        # 1 to 3 us more.
        "fetch.max.bytes": 512 * 1024,
        "max.partition.fetch.bytes": 256 * 1024,
        "message.max.bytes": 1_000,  # a producer's setting, but the client fetches no less than this
        # Limits a batch as it travels, and unpacked if it is zstd (librdkafka 2.16). The client guesses the unpacked
        # size and trebles it until the batch fits, so only a third is certain to fit: 128 MB.
        "receive.message.max.bytes": MOST_UNPACKED,
        # Time until a batch that cannot be unpacked is fetched again; the client's default is 500.
        "fetch.error.backoff.ms": 100,
        **kafka.config,
    }


def poll_interval(kafka: KafkaSettings) -> float:
    """Seconds without a poll after which the consumer leaves its group."""
    return float(kafka.config.get("max.poll.interval.ms", MAX_POLL_INTERVAL_MS)) / 1000


def producer_config(kafka: KafkaSettings, message_bytes: int, batch_bytes: int) -> Config:
    """An idempotent producer's configuration. No topic takes more than `message_bytes`; all take `batch_bytes`."""
    return {
        **_producing_config(kafka, message_bytes, batch_bytes),
        "message.timeout.ms": 0,  # wait for a broker that is away; back-pressure bounds what waits
        "delivery.report.only.error": True,  # how a success is known: `kafka/producer/sink.py`
        # A refused answer ends the worker. Without this the client would still send the answers after it. They would
        # overtake the answer that the next worker writes, and a reader that drops repeats would drop that answer.
        "enable.gapless.guarantee": True,
        **kafka.config,
    }


def transaction_config(
    kafka: KafkaSettings, transactional_id: str, timeout_ms: int, message_bytes: int, batch_bytes: int
) -> Config:
    """A transactional producer's configuration. A transaction lasts `timeout_ms` at most. Sizes: `producer_config`."""
    return {
        **_producing_config(kafka, message_bytes, batch_bytes),
        "transactional.id": transactional_id,
        "transaction.timeout.ms": timeout_ms,
        "message.timeout.ms": timeout_ms,  # a message unsent by then is useless; librdkafka allows no longer time
        "delivery.report.only.error": True,  # the end of the transaction settles its messages
        # The coordinator answers "not yet" while it writes the markers of the last transaction. Back to back, one takes
        # 103 ms at the client's default of 100, and 8 or 28 ms at 20 and below; a busy broker more often needs 28. With
        # 50 ms between transactions, or open for 100 ms, they end within 4 to 10 ms at any value (medians of 2026). A
        # broker that is away costs 7 ms of CPU a second at 2 and at 100 alike.
        "retry.backoff.ms": 2,
        **kafka.config,
    }


def _producing_config(kafka: KafkaSettings, message_bytes: int, batch_bytes: int) -> Config:
    return {
        **_shared_config(kafka),
        "enable.idempotence": True,
        "acks": "all",
        "partitioner": "murmur2_random",  # Java's: one key, one partition, whichever client produced it
        "message.max.bytes": min(max(message_bytes, 1_000), 1_000_000_000),
        "batch.size": min(batch_bytes, 1_000_000),
        # Without a linger a busy producer sends a request for every few answers: client and broker together spend
        # 18 µs on each answer, 11 at 1 ms, 8 at 3 ms (measured 2026). `KafkaSink.push` sends an answer at once when no
        # other is coming.
        "linger.ms": 5,
        # A message holds its slot until its report is served: 20,000 records in flight, twice that with dead letters.
        "queue.buffering.max.messages": 100_000,
        "statistics.interval.ms": 1_000,  # they count the unacknowledged messages of each topic
    }


def admin_config(kafka: Connection) -> Config:
    """The configuration of clients outside the group, without `max.poll.interval.ms`: it may be too short for them."""
    of_all = {key: value for key, value in kafka.config.items() if key != "max.poll.interval.ms"}
    return {**_shared_config(kafka), "allow.auto.create.topics": False, **of_all}


def _shared_config(kafka: Connection) -> Config:
    return {
        "client.id": CLIENT_ID,
        "bootstrap.servers": kafka.bootstrap_servers,
        "socket.keepalive.enable": True,  # firewalls drop idle connections without a word
        # The client waits half of this between the bootstrap address and the broker's own address, which it takes for
        # another broker: 50 ms of each client's start at the default of 100. The time doubles with every failure.
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 2_000,  # at the default of 10 s a broker that is back goes unnoticed for that long
        "log.connection.close": False,  # brokers close idle connections; that is no news
        **_security_config(kafka),
    }


def _security_config(kafka: Connection) -> Config:
    values = {key: getattr(kafka, setting) for setting, key in SECURITY.items()}
    config: Config = {
        key: value.get_secret_value() if isinstance(value, SecretStr) else str(value)
        for key, value in values.items()
        if value is not None
    }
    if kafka.insecure_tls:
        config["enable.ssl.certificate.verification"] = False
    if kafka.sasl_mechanism == "OAUTHBEARER":
        config["sasl.oauthbearer.method"] = "oidc"
    return config


def _group_config(kafka: KafkaSettings, membership: Membership) -> Config:
    config: Config = {
        "client.id": f"{CLIENT_ID}/consumer",
        "group.id": kafka.group_id,
        "group.protocol": membership.protocol,
    }
    if kafka.group_instance_id is not None:
        config["group.instance.id"] = of_this_host(kafka.group_instance_id)
    if membership.protocol == "classic":
        config["partition.assignment.strategy"] = "cooperative-sticky"  # partitions that stay are never stopped
        if kafka.session_timeout_ms is not None:
            config["session.timeout.ms"] = kafka.session_timeout_ms
            # A third, so that two beats may get lost; the client's default of 3 s is too slow for short sessions.
            config["heartbeat.interval.ms"] = min(3_000, max(1, kafka.session_timeout_ms // 3))
    return config
