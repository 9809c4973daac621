"""Keys of librdkafka's that an operator may not pass through in WORKER_KAFKA__CONFIG, each with the reason.

A promise rests on the worker's own value, or a setting of its own says the same. Every other key is passed through.
"""

from __future__ import annotations

from collections.abc import Mapping

from worker.settings import Connection

# What a passed-through key would break, and what to use instead. A key matches exactly or, with a star, by its start.
_OFFSETS = "the worker alone decides which offsets are committed"
_LOSSLESS = "nothing is lost and nothing reordered only with the worker's own value"
_SETTING = "has a setting of its own: {}"
_LOADS_CODE = "makes the client load or run code"
DENIED: Mapping[str, str] = {
    "enable.auto.commit": _OFFSETS,
    "enable.auto.offset.store": _OFFSETS,
    "auto.commit.*": _OFFSETS,
    "offset.store.*": _OFFSETS,
    "enable.partition.eof": _OFFSETS,
    "check.crcs": "after a wrong checksum this client goes on reading at the wrong place",
    "isolation.level": "requests of aborted transactions must not be answered",
    "enable.idempotence": _LOSSLESS,
    "enable.gapless.guarantee": _LOSSLESS,
    "acks": _LOSSLESS,
    "request.required.acks": _LOSSLESS,
    "retries": _LOSSLESS,
    "message.send.max.retries": _LOSSLESS,
    "message.timeout.ms": _LOSSLESS,
    "delivery.timeout.ms": _LOSSLESS,
    "partitioner": "answers with one key go where every Kafka client puts that key",
    "transactional.id": _SETTING.format("WORKER_DELIVERY__TRANSACTIONAL_ID"),
    "transaction.timeout.ms": _SETTING.format("WORKER_DELIVERY__TRANSACTION_TIMEOUT_MS"),
    "delivery.report.only.error": "a record is settled by its delivery report",
    "message.max.bytes": _SETTING.format("WORKER_KAFKA__MAX_MESSAGE_BYTES, or the topic's max.message.bytes"),
    "bootstrap.servers": _SETTING.format("WORKER_KAFKA__BOOTSTRAP_SERVERS"),
    "metadata.broker.list": _SETTING.format("WORKER_KAFKA__BOOTSTRAP_SERVERS"),
    "group.id": _SETTING.format("WORKER_KAFKA__GROUP_ID"),
    "group.instance.id": _SETTING.format("WORKER_KAFKA__GROUP_INSTANCE_ID"),
    "group.protocol": _SETTING.format("WORKER_KAFKA__GROUP_PROTOCOL"),
    "session.timeout.ms": _SETTING.format("WORKER_KAFKA__SESSION_TIMEOUT_MS"),
    "auto.offset.reset": _SETTING.format("WORKER_KAFKA__AUTO_OFFSET_RESET"),
    "security.protocol": _SETTING.format("WORKER_KAFKA__SECURITY_PROTOCOL"),
    "sasl.mechanism": _SETTING.format("WORKER_KAFKA__SASL_MECHANISM"),
    "sasl.mechanisms": _SETTING.format("WORKER_KAFKA__SASL_MECHANISM"),
    "sasl.username": _SETTING.format("WORKER_KAFKA__SASL_USERNAME"),
    "sasl.password": _SETTING.format("WORKER_KAFKA__SASL_PASSWORD"),
    "sasl.oauthbearer.client.secret": _SETTING.format("WORKER_KAFKA__OAUTH_CLIENT_SECRET"),
    "sasl.oauthbearer.client.credentials.client.secret": _SETTING.format("WORKER_KAFKA__OAUTH_CLIENT_SECRET"),
    "sasl.oauthbearer.token.endpoint.url": _SETTING.format("WORKER_KAFKA__OAUTH_TOKEN_ENDPOINT_URL"),
    "ssl.key.password": _SETTING.format("WORKER_KAFKA__SSL_KEY_PASSWORD"),
    "enable.ssl.certificate.verification": _SETTING.format("WORKER_KAFKA__INSECURE_TLS"),
    "ssl.endpoint.identification.algorithm": _SETTING.format("WORKER_KAFKA__INSECURE_TLS"),
    "plugin.library.paths": _LOADS_CODE,
    "ssl.engine.location": _LOADS_CODE,
    "ssl.providers": _LOADS_CODE,
    "sasl.kerberos.kinit.cmd": _LOADS_CODE,
    "enable.sasl.oauthbearer.unsecure.jwt": "anybody could log in with a token of their own making",
    "statistics.interval.ms": "operators see the lag by it, and the group a stand-by replica",
    "debug": "its lines show what is in the records",
    "test.mock.*": "would replace the broker by a mock",
    "ut_*": "would make the client fail on purpose",
    "*_cb": "a callback cannot be configured",
    "on_commit": "a callback cannot be configured",
    "logger": "a callback cannot be configured",
    "opaque": "a callback cannot be configured",
}


def denied_keys(kafka: Connection) -> list[str]:
    """One line for each passed-through key that the worker does not take."""
    found = [(key, _why_denied(key)) for key in kafka.config]
    return [f"WORKER_KAFKA__CONFIG: {key} is not passed through, {why}; remove it" for key, why in found if why]


def _why_denied(key: str) -> str | None:
    # The client takes a key of a topic with this before it, too: `topic.acks` is `acks`.
    key = key.removeprefix("topic.")
    for pattern, why in DENIED.items():
        head, star, tail = pattern.partition("*")
        if key == pattern or (star and key.startswith(head) and key.endswith(tail)):
            return why
    return None
