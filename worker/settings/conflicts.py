"""Settings that do not fit each other: each conflict as one line that names the variable and says what to do.

Pure but for looking whether the files named exist. Owns nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

from worker.core.addresses import Url, host_and_port, is_host, is_loopback
from worker.core.secrets import masked
from worker.settings.kafka_sections import Connection, KafkaSettings
from worker.settings.sections import (
    FILL_SHARE,
    BatchingSettings,
    DeliverySettings,
    ModelSettings,
    Settings,
    StateSettings,
    TelemetrySettings,
    variable,
)

LAST_PORT = 65_535
_CLEAR = "redis://"  # a store's address without TLS
# Of the producer, by either of its names.
_LINGERS = frozenset({"linger.ms", "queue.buffering.max.ms"})
# What we log in with, by PLAIN and SCRAM or by OAUTHBEARER.
_PASSWORD = ("sasl_username", "sasl_password")
_TOKEN = ("oauth_token_endpoint_url", "oauth_client_id", "oauth_client_secret", "oauth_scope")


def conflicts(settings: Settings) -> Iterator[str]:
    """Every conflict found, as text; nothing where the settings fit."""
    yield from chain(
        kafka_conflicts(settings.kafka),
        bounds_conflicts(settings.batching),
        _transactions(settings.delivery),
        _linger(settings),
        model_conflicts(settings.model),
        _state(settings),
        _replicas(settings.telemetry),
    )


def kafka_conflicts(kafka: KafkaSettings) -> Iterator[str]:
    yield from chain(_topics(kafka), _group(kafka), connection_conflicts(kafka))


def connection_conflicts(kafka: Connection) -> Iterator[str]:
    yield from chain(_addresses(kafka), _encryption(kafka), _certificates(kafka), _login(kafka), _tokens(kafka))


def _addresses(kafka: Connection) -> Iterator[str]:
    for server in map(str.strip, kafka.bootstrap_servers.split(",")):
        host, port = host_and_port(server)
        protocol, is_named, _ = server.partition("://")
        if is_named and protocol.upper() != kafka.security_protocol:
            yield (
                f"WORKER_KAFKA__BOOTSTRAP_SERVERS: {server!r} names a protocol, and WORKER_KAFKA__SECURITY_PROTOCOL is "
                f"{kafka.security_protocol}: the client would pass it over; write host:port alone"
            )
        elif port and ":" in host and "[" not in server:
            yield (
                f"WORKER_KAFKA__BOOTSTRAP_SERVERS: {server!r} is one long IPv6 address to the client; "
                f"with a port it wants brackets, write [{host}]:{port}"
            )
        elif not is_host(host) or (port and not (port.isdecimal() and 0 < int(port) <= LAST_PORT)):
            yield (
                f"WORKER_KAFKA__BOOTSTRAP_SERVERS: {server!r} is no broker; write host:port, with a port from 1 to "
                f"{LAST_PORT}, or the host alone for Kafka's 9092, and a comma between two"
            )


def _topics(kafka: KafkaSettings) -> Iterator[str]:
    if len(set(kafka.request_topics)) < len(kafka.request_topics):
        yield "WORKER_KAFKA__REQUEST_TOPICS: names a topic twice; name each once"
    if kafka.response_topic in kafka.request_topics:
        yield "WORKER_KAFKA__RESPONSE_TOPIC: is also a request topic, answers would come back as requests; use another"
    if kafka.dead_letter_topic in (*kafka.request_topics, kafka.response_topic):
        yield "WORKER_KAFKA__DEAD_LETTER_TOPIC: is also a request topic or the response topic; use one of its own"
    others = (*kafka.request_topics, kafka.dead_letter_topic, kafka.changelog_topic)
    for topic in kafka.reply_topics:
        if topic in others:
            yield f"WORKER_KAFKA__REPLY_TOPICS: {topic} is also another topic of this worker, and no place for answers"


def _group(kafka: KafkaSettings) -> Iterator[str]:
    if kafka.group_protocol == "consumer" and kafka.session_timeout_ms is not None:
        yield (
            "WORKER_KAFKA__SESSION_TIMEOUT_MS: the broker sets it for a KIP-848 group; "
            "unset it, or set WORKER_KAFKA__GROUP_PROTOCOL to classic"
        )


def _encryption(kafka: Connection) -> Iterator[str]:
    is_plain = kafka.security_protocol in ("PLAINTEXT", "SASL_PLAINTEXT")
    servers = map(str.strip, kafka.bootstrap_servers.split(","))
    distant = [server for server in servers if is_host(host_and_port(server)[0]) and not is_loopback(server)]
    if is_plain and distant and not kafka.allow_plaintext:
        yield (
            f"WORKER_KAFKA__SECURITY_PROTOCOL: {kafka.security_protocol} to {distant[0]} would cross the "
            "network unencrypted; use SSL or SASL_SSL, or set WORKER_KAFKA__ALLOW_PLAINTEXT=true"
        )
    if is_plain and kafka.insecure_tls:
        yield f"WORKER_KAFKA__INSECURE_TLS: there is no TLS with {kafka.security_protocol}; unset it"
    if not is_plain and kafka.insecure_tls and kafka.ssl_ca_location is not None:
        yield (
            "WORKER_KAFKA__SSL_CA_LOCATION: has no effect with WORKER_KAFKA__INSECURE_TLS=true, which accepts any "
            "certificate; unset one of them"
        )


def _certificates(kafka: Connection) -> Iterator[str]:
    for setting, path in kafka.certificates.items():
        name = variable("kafka", setting)
        if "SSL" not in kafka.security_protocol:
            yield f"{name}: has no effect with {kafka.security_protocol}; use SSL or SASL_SSL, or unset it"
        elif not path.exists():
            yield f"{name}: there is no file {masked(str(path))}"
    if (kafka.ssl_certificate_location is None) != (kafka.ssl_key_location is None):
        yield "WORKER_KAFKA__SSL_CERTIFICATE_LOCATION: goes with SSL_KEY_LOCATION; set both or neither"
    if kafka.ssl_key_password is not None and kafka.ssl_key_location is None:
        yield "WORKER_KAFKA__SSL_KEY_PASSWORD: there is no key to open; set WORKER_KAFKA__SSL_KEY_LOCATION or unset it"


def _login(kafka: Connection) -> Iterator[str]:
    """What a login lacks, and what is set for one that is not made."""
    protocol, mechanism = kafka.security_protocol, kafka.sasl_mechanism
    if not protocol.startswith("SASL_"):
        cure = "set WORKER_KAFKA__SECURITY_PROTOCOL to SASL_SSL"
        yield from _idle(kafka, ("sasl_mechanism", *_PASSWORD, *_TOKEN), protocol, cure)
    elif mechanism is None:
        yield f"WORKER_KAFKA__SASL_MECHANISM: {protocol} needs one; PLAIN, SCRAM-SHA-512 or OAUTHBEARER"
    else:
        used, idle = (_TOKEN, _PASSWORD) if mechanism == "OAUTHBEARER" else (_PASSWORD, _TOKEN)
        for key in used:
            if getattr(kafka, key) is None and key != "oauth_scope":
                yield f"{variable('kafka', key)}: {mechanism} needs it; set it"
        yield from _idle(kafka, idle, mechanism, "set another WORKER_KAFKA__SASL_MECHANISM")


def _idle(kafka: Connection, keys: Iterable[str], used: str, cure: str) -> Iterator[str]:
    for key in keys:
        if getattr(kafka, key) is not None:
            yield f"{variable('kafka', key)}: has no effect with {used}; {cure}, or unset it"


def _tokens(kafka: Connection) -> Iterator[str]:
    """Where the client's secret goes. The client follows no redirection, so only this address matters."""
    if kafka.oauth_token_endpoint_url is None:
        return
    url = _without_login(kafka.oauth_token_endpoint_url)
    if url is None:
        yield (
            "WORKER_KAFKA__OAUTH_TOKEN_ENDPOINT_URL: is no address of an issuer of tokens; write https://host/path, "
            "without a login, which is WORKER_KAFKA__OAUTH_CLIENT_ID and WORKER_KAFKA__OAUTH_CLIENT_SECRET"
        )
    elif url.is_in_clear and not kafka.allow_plaintext:
        yield (
            f"WORKER_KAFKA__OAUTH_TOKEN_ENDPOINT_URL: the client's secret would go to {url.host} unencrypted; use "
            "https://, or set WORKER_KAFKA__ALLOW_PLAINTEXT=true"
        )


def bounds_conflicts(batching: BatchingSettings) -> Iterator[str]:
    if batching.lanes > batching.max_inflight_batches:
        yield (
            f"WORKER_BATCHING__LANES: {batching.lanes} lanes cannot all work on {batching.max_inflight_batches} "
            "batches; raise WORKER_BATCHING__MAX_INFLIGHT_BATCHES, or unset it"
        )
    if batching.latency_budget_ms is not None and batching.linger is not None:
        yield (
            f"WORKER_BATCHING__LATENCY_BUDGET_MS: has no effect with a linger of {batching.linger_ms:g} ms; "
            "set WORKER_BATCHING__LINGER_MS to auto, or unset it"
        )
    # One batch fills while the others run, or a full batch never forms.
    batches = batching.max_inflight_batches + 1
    for bound, batch in (("max_inflight_rows", "max_batch_size"), ("max_inflight_bytes", "max_batch_bytes")):
        least = getattr(batching, batch) * batches
        if getattr(batching, bound) < least:
            yield (
                f"{variable('batching', bound)}: must hold {batches} batches of {batch.upper()}; "
                f"set it to {least} or more"
            )


def _linger(settings: Settings) -> Iterator[str]:
    drain = settings.delivery.drain_timeout_s
    for key in _LINGERS & settings.kafka.config.keys():
        with suppress(ValueError):  # the client says what it does not take
            if float(settings.kafka.config[key]) >= drain * 1000:
                yield (
                    f"WORKER_KAFKA__CONFIG: {key} must be less than WORKER_DELIVERY__DRAIN_TIMEOUT_S, or a stop ends "
                    "before the answers are sent"
                )
    if (linger := settings.batching.linger) is not None and linger >= drain:
        yield "WORKER_BATCHING__LINGER_MS: must be less than WORKER_DELIVERY__DRAIN_TIMEOUT_S, or no batch ends in time"


def _transactions(delivery: DeliverySettings) -> Iterator[str]:
    if delivery.guarantee == "at_least_once":
        cure = "set WORKER_DELIVERY__GUARANTEE to exactly_once, or unset it"
        if delivery.transactional_id is not None:
            yield f"WORKER_DELIVERY__TRANSACTIONAL_ID: has no effect with at_least_once; {cure}"
        if "transaction_timeout_ms" in delivery.model_fields_set:
            yield f"WORKER_DELIVERY__TRANSACTION_TIMEOUT_MS: has no effect with at_least_once; {cure}"
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
        if kafka.changelog_topic is not None:
            yield "WORKER_KAFKA__CHANGELOG_TOPIC: has no effect without WORKER_STATE__TENSORS; set that, or unset it"
        for key in sorted(state.model_fields_set - {"tensors"}):
            yield f"{variable('state', key)}: has no effect without WORKER_STATE__TENSORS; set that, or unset it"
        return
    if len(kafka.request_topics) > 1:
        yield (
            "WORKER_KAFKA__REQUEST_TOPICS: with state there is one request topic, for the same key of two topics may "
            "be another replica's; run a group for each, with a CHANGELOG_TOPIC of its own"
        )
    if kafka.changelog_topic is not None and kafka.changelog_topic in (
        *kafka.request_topics,
        kafka.response_topic,
        kafka.dead_letter_topic,
    ):
        yield "WORKER_KAFKA__CHANGELOG_TOPIC: is also another topic of this worker; use one of its own"
    yield from _store(settings) if state.store is not None else _without_store(state)
    yield from _state_alone(state)
    for name in set(state.tensors) & set(settings.model.input_defaults):
        yield f"WORKER_MODEL__INPUT_DEFAULTS: {name} is state, and no request brings it; unset it there"


def _without_store(state: StateSettings) -> Iterator[str]:
    for key in sorted(key for key in state.model_fields_set if key.startswith("store_") or key == "key_prefix"):
        yield f"{variable('state', key)}: has no effect without WORKER_STATE__STORE; set that, or unset it"


def _store(settings: Settings) -> Iterator[str]:
    kafka, state = settings.kafka, settings.state
    yield from store_in_clear(settings)
    if settings.delivery.guarantee == "exactly_once":
        yield (
            "WORKER_DELIVERY__GUARANTEE: a store outside has no part in Kafka's transactions; use at_least_once, or "
            "unset WORKER_STATE__STORE"
        )
    if state.directory is not None:
        yield "WORKER_STATE__DIRECTORY: has no effect with WORKER_STATE__STORE, which has all states; unset one of them"
    if kafka.changelog_topic is not None:
        yield (
            "WORKER_KAFKA__CHANGELOG_TOPIC: has no effect with WORKER_STATE__STORE, which keeps the states; unset one "
            "of them"
        )
    if state.store_ca_location is not None:
        if state.store is not None and state.store.startswith(_CLEAR):
            yield "WORKER_STATE__STORE_CA_LOCATION: there is no TLS with redis://; write rediss://, or unset it"
        elif not state.store_ca_location.is_file():
            yield f"WORKER_STATE__STORE_CA_LOCATION: there is no file {state.store_ca_location}"


def store_in_clear(settings: Settings) -> Iterator[str]:
    """By the rule of the brokers: states are the requests' data, and a login may go with them."""
    url = settings.state.store or ""
    host = url.removeprefix(_CLEAR).partition("/")[0]
    if url.startswith(_CLEAR) and not is_loopback(host) and not settings.kafka.allow_plaintext:
        yield (
            f"WORKER_STATE__STORE: {url} would cross the network unencrypted; use rediss://, or set "
            "WORKER_KAFKA__ALLOW_PLAINTEXT=true"
        )


def _state_alone(state: StateSettings) -> Iterator[str]:
    if state.directory is None and state.store is None and "keys_in_memory" in state.model_fields_set:
        yield (
            "WORKER_STATE__KEYS_IN_MEMORY: has no effect without WORKER_STATE__DIRECTORY or WORKER_STATE__STORE; set "
            "one of them, or unset it"
        )
    if isinstance(state.initial, Path) and not state.initial.is_file():
        yield f"WORKER_STATE__INITIAL: there is no file {state.initial}"


def model_conflicts(model: ModelSettings) -> Iterator[str]:
    yield from chain(_device(model), _warm_up(model), _input_defaults(model), _memory(model))


def _device(model: ModelSettings) -> Iterator[str]:
    if model.providers and model.device != "auto":
        yield (
            f"WORKER_MODEL__DEVICE: {model.device} has no effect with WORKER_MODEL__PROVIDERS, which says where the "
            "model runs; unset one of them"
        )


def _warm_up(model: ModelSettings) -> Iterator[str]:
    rows = model.warm_up_rows
    if rows and len(set(rows)) < 2:
        yield (
            "WORKER_MODEL__WARM_UP_ROWS: one row count cannot tell a batch axis from a fixed one; "
            "give two different ones, or unset it"
        )


def _input_defaults(model: ModelSettings) -> Iterator[str]:
    if model.non_finite_input == "allow":
        return
    for name, value in model.input_defaults.items():
        if isinstance(value, float) and not math.isfinite(value):
            yield (
                f"WORKER_MODEL__INPUT_DEFAULTS: {name} is {value}, for which each request that leaves it out would be "
                "rejected; give a finite number, or set WORKER_MODEL__NON_FINITE_INPUT=allow"
            )


def _memory(model: ModelSettings) -> Iterator[str]:
    has_cuda = "CUDAExecutionProvider" in model.providers if model.providers else model.device != "cpu"
    for key in ("gpu_mem_limit", "arena_extend_strategy"):
        name = variable("model", key)
        if getattr(model, key) is None:
            continue
        if f"CUDAExecutionProvider.{key}" in model.provider_options:
            yield f"{name}: WORKER_MODEL__PROVIDER_OPTIONS sets it for CUDAExecutionProvider too; unset one of them"
        if not has_cuda:
            named = "WORKER_MODEL__PROVIDERS without CUDA" if model.providers else "WORKER_MODEL__DEVICE=cpu"
            yield f"{name}: has no effect with {named}; unset it"


def _replicas(telemetry: TelemetrySettings) -> Iterator[str]:
    if None in map(_without_login, telemetry.replicas):
        yield (
            "WORKER_TELEMETRY__REPLICAS: has what is no address of a page; write http://host:port/, and a comma "
            "between two, without a login: all who reach this worker's page see them"
        )


def _without_login(address: str) -> Url | None:
    """None where it is no address, or has a login in it."""
    try:
        url = Url(address)
    except ValueError:
        return None
    return None if url.has_login else url
