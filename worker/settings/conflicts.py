"""Finds settings that do not fit each other: each conflict is one line that names the variable and says what to do.

Only conflicts that would otherwise fail silently, or late: a setting without effect, a topic in two roles, a secret in
the clear. Pure, except that it looks for the files of the certificates. Owns nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from worker.core.addresses import Url, host_and_port, is_host, is_loopback
from worker.core.secrets import masked
from worker.settings.kafka_sections import Connection, KafkaSettings
from worker.settings.registry_section import RegistrySettings
from worker.settings.sections import FILL_SHARE, BatchingSettings, DeliverySettings, ModelSettings, Settings, variable
from worker.settings.value_types import Section

LAST_PORT = 65_535
_CLEAR = "redis://"  # a store's address without TLS
# The settings of a login by PLAIN and SCRAM, by OAUTHBEARER, and of TLS.
_PASSWORD = ("sasl_username", "sasl_password")
_TOKEN = ("oauth_token_endpoint_url", "oauth_client_id", "oauth_client_secret")
_CERTIFICATES = ("ssl_ca_location", "ssl_certificate_location", "ssl_key_location")


def conflicts(settings: Settings) -> Iterator[str]:
    """Every conflict found, as text; nothing where the settings fit."""
    yield from chain(
        _topics(settings.kafka),
        connection_conflicts(settings.kafka),
        bounds_conflicts(settings.batching),
        _host(settings.model, settings.batching),
        _transactions(settings.delivery),
        _state(settings),
        _registry(settings),
    )


def connection_conflicts(kafka: Connection) -> Iterator[str]:
    yield from chain(_addresses(kafka), _encryption(kafka), _login(kafka))


def _idle(section: str, values: Section, keys: Iterable[str], why: str) -> Iterator[str]:
    """The conflicts of settings that are set and have no effect. `why` says with what, and the cure."""
    for key in sorted(values.model_fields_set & set(keys)):
        if getattr(values, key) is not None:
            yield f"{variable(section, key)}: has no effect {why}, or unset it"


def _addresses(kafka: Connection) -> Iterator[str]:
    for server in map(str.strip, kafka.bootstrap_servers.split(",")):
        host, port = host_and_port(server)
        is_port = not port or (port.isdecimal() and 0 < int(port) <= LAST_PORT)
        if not is_port or not is_host(host):
            yield f"WORKER_KAFKA__BOOTSTRAP_SERVERS: {server!r} is no broker; write host:port, or [IPv6]:port"


def _topics(kafka: KafkaSettings) -> Iterator[str]:
    """Each topic has one role: answers in a request topic would come back as requests."""
    roles = [
        *(("REQUEST_TOPICS", topic) for topic in kafka.request_topics),
        ("RESPONSE_TOPIC", kafka.response_topic),
        ("DEAD_LETTER_TOPIC", kafka.dead_letter_topic),
        ("CHANGELOG_TOPIC", kafka.changelog_topic),
        *(("REPLY_TOPICS", topic) for topic in kafka.reply_topics if topic != kafka.response_topic),
    ]
    seen: dict[str, str] = {}
    for role, topic in roles:
        if topic is None:
            continue
        if topic in seen:
            yield f"WORKER_KAFKA__{role}: {topic} is also in WORKER_KAFKA__{seen[topic]}; name another topic"
        seen.setdefault(topic, role)


def _encryption(kafka: Connection) -> Iterator[str]:
    servers = map(str.strip, kafka.bootstrap_servers.split(","))
    distant = [server for server in servers if is_host(host_and_port(server)[0]) and not is_loopback(server)]
    if "SSL" not in kafka.security_protocol:
        if distant and not kafka.allow_plaintext:
            yield (
                f"WORKER_KAFKA__SECURITY_PROTOCOL: {kafka.security_protocol} to {distant[0]} would cross the "
                "network unencrypted; use SSL or SASL_SSL, or set WORKER_KAFKA__ALLOW_PLAINTEXT=true"
            )
        why = f"with {kafka.security_protocol}; set WORKER_KAFKA__SECURITY_PROTOCOL to SSL or SASL_SSL"
        yield from _idle("kafka", kafka, _CERTIFICATES, why)
        return
    yield from _certificates("kafka", kafka)


def _certificates(section: str, values: Connection | RegistrySettings) -> Iterator[str]:
    """The files of certificates that are not there, and a certificate without its key."""
    for setting in _CERTIFICATES:
        path = getattr(values, setting)
        if path is not None and not path.exists():
            yield f"{variable(section, setting)}: there is no file {masked(str(path))}"
    if (values.ssl_certificate_location is None) != (values.ssl_key_location is None):
        yield f"{variable(section, 'ssl_certificate_location')}: goes with SSL_KEY_LOCATION; set both or neither"


def _login(kafka: Connection) -> Iterator[str]:
    """The conflicts of a login: settings that it lacks, and settings of another login."""
    protocol, mechanism = kafka.security_protocol, kafka.sasl_mechanism
    if not protocol.startswith("SASL_"):
        why = f"with {protocol}; set WORKER_KAFKA__SECURITY_PROTOCOL to SASL_SSL"
        yield from _idle("kafka", kafka, ("sasl_mechanism", *_PASSWORD, *_TOKEN), why)
    elif mechanism is None:
        yield f"WORKER_KAFKA__SASL_MECHANISM: {protocol} needs one; PLAIN, SCRAM-SHA-512 or OAUTHBEARER"
    else:
        used, idle = (_TOKEN, _PASSWORD) if mechanism == "OAUTHBEARER" else (_PASSWORD, _TOKEN)
        for key in used:
            if getattr(kafka, key) is None:
                yield f"{variable('kafka', key)}: {mechanism} needs it; set it"
        yield from _idle("kafka", kafka, idle, f"with {mechanism}; set another WORKER_KAFKA__SASL_MECHANISM")
    url = kafka.oauth_token_endpoint_url  # the client follows no redirection, so only this address matters
    if url is not None and Url(url).is_in_clear and not kafka.allow_plaintext:
        yield (
            f"WORKER_KAFKA__OAUTH_TOKEN_ENDPOINT_URL: the client's secret would go to {Url(url).host} unencrypted; use "
            "https://, or set WORKER_KAFKA__ALLOW_PLAINTEXT=true"
        )


def bounds_conflicts(batching: BatchingSettings) -> Iterator[str]:
    # One more batch must fit, to fill while the others run: else a full batch never forms.
    batches = batching.max_inflight_batches + 1
    if batching.max_inflight_bytes < (least := batching.max_batch_bytes * batches):
        yield (
            f"WORKER_BATCHING__MAX_INFLIGHT_BYTES: must hold {batches} batches of MAX_BATCH_BYTES; "
            f"set it to {least} or more"
        )


def _host(model: ModelSettings, batching: BatchingSettings) -> Iterator[str]:
    if model.host == "thread":
        if batching.lanes > 1:
            yield (
                f"WORKER_BATCHING__LANES: {batching.lanes} lanes are threads of the model's own process, and with "
                "HOST=thread it has none; set WORKER_MODEL__HOST to process, or LANES to 1"
            )
        yield from _idle("model", model, ["memory_limit"], "with HOST=thread; set WORKER_MODEL__HOST to process")
        if model.path.suffix == ".py":
            yield (
                "WORKER_MODEL__HOST: thread would let a model in Python hold up the worker, because both need the "
                "interpreter; set it to process"
            )


def _transactions(delivery: DeliverySettings) -> Iterator[str]:
    if delivery.guarantee == "at_least_once":
        why = "with at_least_once; set WORKER_DELIVERY__GUARANTEE to exactly_once"
        yield from _idle("delivery", delivery, ["transactional_id", "transaction_timeout_ms"], why)
        return
    if delivery.order != "partition":
        yield (
            f"WORKER_DELIVERY__ORDER: {delivery.order} lets answers leave ahead of earlier ones, and a transaction "
            "holds only answers below the offsets it commits; set it to partition, or "
            "WORKER_DELIVERY__GUARANTEE to at_least_once"
        )
    longest = delivery.transaction_timeout_ms // FILL_SHARE
    if delivery.commit_interval_ms > longest:
        yield (
            f"WORKER_DELIVERY__COMMIT_INTERVAL_MS: {delivery.commit_interval_ms} leaves too little of "
            f"WORKER_DELIVERY__TRANSACTION_TIMEOUT_MS={delivery.transaction_timeout_ms} to end a transaction; "
            f"set it to {longest} or less"
        )


def _state(settings: Settings) -> Iterator[str]:
    kafka, state = settings.kafka, settings.state
    if not state.tensors:
        why = "without WORKER_STATE__TENSORS; set that"
        yield from _idle("state", state, state.model_fields_set - {"tensors"}, why)
        return
    if len(kafka.request_topics) > 1:
        yield (
            "WORKER_KAFKA__REQUEST_TOPICS: with state there is one request topic, for the same key of two topics may "
            "be another replica's; run a group for each, with a CHANGELOG_TOPIC of its own"
        )
    if state.store is None:
        return
    # The rule for brokers holds here, too: states are the requests' data, and a login may go with them.
    host = state.store.removeprefix(_CLEAR).partition("/")[0]
    if state.store.startswith(_CLEAR) and not is_loopback(host) and not kafka.allow_plaintext:
        yield (
            f"WORKER_STATE__STORE: {state.store} would cross the network unencrypted; use rediss://, or set "
            "WORKER_KAFKA__ALLOW_PLAINTEXT=true"
        )
    if settings.delivery.guarantee == "exactly_once":
        yield (
            "WORKER_DELIVERY__GUARANTEE: a store outside has no part in Kafka's transactions; use at_least_once, or "
            "unset WORKER_STATE__STORE"
        )


def _registry(settings: Settings) -> Iterator[str]:
    """The conflicts of the registry's address and login: the rules for brokers hold here, too."""
    registry = settings.registry
    is_needed = settings.records is not None and settings.records.encoding == "registry"
    if registry is None:
        if is_needed:
            yield "WORKER_REGISTRY__URL: RECORDS__ENCODING=registry needs it; set the registry's address"
        return
    if not is_needed:
        why = "without WORKER_RECORDS__ENCODING=registry; set that"
        yield from _idle("registry", registry, registry.model_fields_set, why)
        return
    yield from registry_conflicts(registry, settings.kafka)


def registry_conflicts(registry: RegistrySettings, kafka: Connection) -> Iterator[str]:
    """The conflicts of a registry's address and login."""
    if Url(registry.url).is_encrypted:
        yield from _certificates("registry", registry)
    else:
        yield from _idle("registry", registry, (*_CERTIFICATES, "ssl_key_password"), "with http://; write https://")
    if Url(registry.url).is_in_clear and not kafka.allow_plaintext:
        yield (
            f"WORKER_REGISTRY__URL: {registry.url} would be asked unencrypted; use https://, or set "
            "WORKER_KAFKA__ALLOW_PLAINTEXT=true"
        )
    yield from _registry_login(registry)


def _registry_login(registry: RegistrySettings) -> Iterator[str]:
    token = "" if registry.token is None else registry.token.get_secret_value()
    if not (token.isascii() and token.isprintable()):  # the client would show it in an error
        yield "WORKER_REGISTRY__TOKEN: is no token: it has other characters than a header can carry"
    if (registry.username is None) != (registry.password is None):
        yield "WORKER_REGISTRY__USERNAME: goes with PASSWORD; set both or neither"
    elif registry.username is not None and registry.token is not None:
        yield "WORKER_REGISTRY__TOKEN: there is a USERNAME, too, which is another login; set one of them"
