"""Keys of librdkafka's that an operator may not pass through in WORKER_KAFKA__CONFIG, each with the reason.

A promise rests on the worker's own value, or a setting of its own says the same. Every other key is passed through.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from worker.settings import Connection

# What a passed-through key would break. A star stands for any text.
_BREAKS = {
    "the worker alone decides which offsets are committed": (
        "enable.auto.commit enable.auto.offset.store auto.commit.* offset.store.* enable.partition.eof"
    ),
    "nothing is lost and nothing reordered only with the worker's own value": (
        "enable.idempotence enable.gapless.guarantee acks request.required.acks retries message.send.max.retries "
        "message.timeout.ms delivery.timeout.ms"
    ),
    "after a wrong checksum this client goes on reading at the wrong place": "check.crcs",
    "requests of aborted transactions must not be answered": "isolation.level",
    "answers with one key go where every Kafka client puts that key": "partitioner",
    "a record is settled by its delivery report": "delivery.report.only.error",
    "makes the client load or run code": (
        "plugin.library.paths ssl.engine.location ssl.providers sasl.kerberos.kinit.cmd"
    ),
    "anybody could log in with a token of their own making": "enable.sasl.oauthbearer.unsecure.jwt",
    "operators see the lag by it, and the group a stand-by replica": "statistics.interval.ms",
    "its lines show what is in the records": "debug",
    "would replace the broker by a mock": "test.mock.*",
    "would make the client fail on purpose": "ut_*",
    "a callback cannot be configured": "*_cb on_commit logger opaque",
}
# The settings that say the same. Those of the same name first.
_NAMED_ALIKE = (
    "bootstrap.servers group.id group.instance.id group.protocol session.timeout.ms auto.offset.reset "
    "security.protocol sasl.mechanism sasl.username sasl.password ssl.key.password"
)
_SETTINGS = {
    **{f"WORKER_KAFKA__{key.replace('.', '_').upper()}": key for key in _NAMED_ALIKE.split()},
    "WORKER_KAFKA__BOOTSTRAP_SERVERS": "bootstrap.servers metadata.broker.list",
    "WORKER_KAFKA__MAX_MESSAGE_BYTES, or the topic's max.message.bytes": "message.max.bytes",
    "WORKER_KAFKA__SASL_MECHANISM": "sasl.mechanism sasl.mechanisms",
    "WORKER_KAFKA__OAUTH_CLIENT_SECRET": (
        "sasl.oauthbearer.client.secret sasl.oauthbearer.client.credentials.client.secret"
    ),
    "WORKER_KAFKA__OAUTH_TOKEN_ENDPOINT_URL": "sasl.oauthbearer.token.endpoint.url",
    "WORKER_KAFKA__INSECURE_TLS": "enable.ssl.certificate.verification ssl.endpoint.identification.algorithm",
    "WORKER_DELIVERY__TRANSACTIONAL_ID": "transactional.id",
    "WORKER_DELIVERY__TRANSACTION_TIMEOUT_MS": "transaction.timeout.ms",
}
DENIED: Mapping[str, str] = {
    **{key: why for why, keys in _BREAKS.items() for key in keys.split()},
    **{key: f"has a setting of its own: {setting}" for setting, keys in _SETTINGS.items() for key in keys.split()},
}


def denied_keys(kafka: Connection) -> list[str]:
    """One line for each passed-through key that the worker does not take."""
    found = [(key, _why_denied(key)) for key in kafka.config]
    return [f"WORKER_KAFKA__CONFIG: {key} is not passed through, {why}; remove it" for key, why in found if why]


def _why_denied(key: str) -> str | None:
    # The client takes a key of a topic with this before it, too: `topic.acks` is `acks`.
    key = key.removeprefix("topic.")
    return next((why for pattern, why in DENIED.items() if fnmatchcase(key, pattern)), None)
