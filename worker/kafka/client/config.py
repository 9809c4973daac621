"""The way from the settings to librdkafka's own dictionaries; each value that is a choice has its reason.

The dictionaries hold secrets: they are built last, handed to a client and dropped; nothing logs them. Keys that the
operator passes through go to every client (one that does not know a key ignores it) and come after ours. They may
override tuning, and nothing that a promise rests on: `denied_keys`.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from pydantic import SecretStr

from worker.kafka.client.membership import CLIENT_ID, Membership, of_this_host
from worker.settings import Connection, KafkaSettings

Config = dict[str, str | int | float | bool]

# Thirty times what a revoke may take; the watchdog ends a hung worker well before.
MAX_POLL_INTERVAL_MS = 300_000

# Bytes of one batch, in the memory of one broker's thread. With what is in flight by default it fits into 1 GiB.
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
    """One line for each passed-through key that the worker does not take."""
    found = [(key, _why_denied(key)) for key in kafka.config]
    return [f"WORKER_KAFKA__CONFIG: {key} is not passed through, {why}; remove it" for key, why in found if why]


def _why_denied(key: str) -> str | None:
    # The client takes a key of a topic with this before it, too: `topic.acks` is `acks`.
    key = key.removeprefix("topic.")
    return next((why for pattern, why in DENIED.items() if fnmatchcase(key, pattern)), None)


def consumer_config(kafka: KafkaSettings, membership: Membership) -> Config:
    """The consumer's, whose offsets are committed by hand."""
    return {
        **_shared_config(kafka),
        **_group_config(kafka, membership),
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": kafka.auto_offset_reset,
        "isolation.level": "read_committed",
        # After a wrong checksum librdkafka 2.16 reads on at the wrong place of the response: it went from offset 1 to
        # 33,554,433, and from there to the beginning (measured 2026-11). Brokers check what they store, TLS what
        # travels; a disk that flips bits in an unpacked record goes unnoticed.
        "check.crcs": False,
        "allow.auto.create.topics": False,
        "max.poll.interval.ms": MAX_POLL_INTERVAL_MS,
        # They tell a stand-by replica that it is in the group, and operators the lag; 6 kB, 0.2 ms (measured 2026).
        "statistics.interval.ms": 1_000,
        # Read ahead, for each partition: 250,000 records/s of 1 KiB in 11 MB; the client's 100,000: 450,000 in 89 MB
        # (measured 2026, four partitions). No model is that fast, and what is read ahead is lost in a rebalance.
        "queued.min.messages": 5_000,
        # Read ahead in all, kB. With one fetch from each broker on top this is the consumer's memory.
        "queued.max.messages.kbytes": 32 * 1024,
        # With the queue full the client waits so long before it fetches again. The default of 1 s starves the loop:
        # 31,000-45,000 records/s of 1 KiB against 279,000-434,000 with 20 ms (measured 2026).
        "fetch.queue.backoff.ms": 20,
        # As it travels; the client unpacks a fetch whole, and the first batch comes whatever its size. Of 48 waiting
        # batches that unpack to 45 MB each, 2,240 MB were held with 2 MiB and 1 for a partition, 663 like this (zstd;
        # gzip 725 and 192; measured 2026). Rows of 1 KiB cost the same, of 4 KiB 1 to 3 us more of the client's CPU.
        "fetch.max.bytes": 512 * 1024,
        "max.partition.fetch.bytes": 256 * 1024,
        "message.max.bytes": 1_000,  # of a producer's; the client fetches no less than this
        # The most that one batch may take as it travels, and unpacked if it is zstd (librdkafka 2.16). It guesses the
        # room it needs and trebles it until all fits, so a third is sure: 128 MB.
        "receive.message.max.bytes": MOST_UNPACKED,
        # A batch that cannot be unpacked is tried again after so long; the client's default is 500.
        "fetch.error.backoff.ms": 100,
        **kafka.config,
    }


def poll_interval(kafka: KafkaSettings) -> float:
    """Seconds without a poll after which the consumer leaves its group."""
    return float(kafka.config.get("max.poll.interval.ms", MAX_POLL_INTERVAL_MS)) / 1000


def producer_config(kafka: KafkaSettings, message_bytes: int, batch_bytes: int) -> Config:
    """An idempotent producer's. `message_bytes`: largest record that any topic takes; `batch_bytes`: that all take."""
    return {
        **_producing_config(kafka, message_bytes, batch_bytes),
        "message.timeout.ms": 0,  # wait for a broker that is away; back-pressure bounds what waits
        "delivery.report.only.error": True,  # how a success is known: `kafka/producer/sink.py`
        # An answer that a broker refuses ends the worker. Without this the client would go on with the answers behind
        # it: they would overtake the one that the next worker writes, and a reader that drops repeats would drop that.
        "enable.gapless.guarantee": True,
        **kafka.config,
    }


def transaction_config(
    kafka: KafkaSettings, transactional_id: str, timeout_ms: int, message_bytes: int, batch_bytes: int
) -> Config:
    """A transactional producer's; a transaction is open for `timeout_ms` at most. The rest as in `producer_config`."""
    return {
        **_producing_config(kafka, message_bytes, batch_bytes),
        "transactional.id": transactional_id,
        "transaction.timeout.ms": timeout_ms,
        "message.timeout.ms": timeout_ms,  # what is not sent by then is not wanted; librdkafka takes no more
        "delivery.report.only.error": True,  # what was sent is settled by the end of its transaction
        # The coordinator answers "not yet" while it writes the markers of the last transaction. Back to back, one takes
        # 103 ms at the client's default of 100, and 8 or 28 at 20 and below, the busier the broker the more often 28;
        # with 50 ms between them, or open for 100, they end within 4 to 10 at any (medians of 2026). A broker that
        # is away costs 7 ms of CPU a second at 2 as at 100.
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
        # Under load a producer that waits for nothing sends a request for every few answers: client and broker together
        # spend 18 µs an answer on it, 11 at 1 ms, 8 at 3 ms (measured 2026). The worker lets no answer wait for company
        # that is not coming: `KafkaSink.push`.
        "linger.ms": 5,
        # Slots are held until the report is served; in-flight records are bounded by 20,000, dead letters double them.
        "queue.buffering.max.messages": 100_000,
        "statistics.interval.ms": 1_000,  # what is not acknowledged, by topic
    }


def admin_config(kafka: Connection) -> Config:
    """The configuration of clients outside the group. `max.poll.interval.ms` may be too short for them."""
    of_all = {key: value for key, value in kafka.config.items() if key != "max.poll.interval.ms"}
    return {**_shared_config(kafka), "allow.auto.create.topics": False, **of_all}


def _shared_config(kafka: Connection) -> Config:
    return {
        "client.id": CLIENT_ID,
        "bootstrap.servers": kafka.bootstrap_servers,
        "socket.keepalive.enable": True,  # firewalls drop idle connections without a word
        # The client waits half of it between its first broker and the next one, which for it is the same broker by its
        # own name: 50 ms of each client's start at the default of 100. It doubles with every failure.
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 2_000,  # the default of 10 s is how long a broker that is back goes unnoticed
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
