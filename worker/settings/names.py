"""Which names in the environment are settings, and which setting a name that is none was meant to be. Pure.

Every `WORKER_*` is ours but what a platform injects for a service whose name begins with "worker". A guess goes from
what is certain to what is near, and ends at the first that finds something:

1. the whole name, its underscores aside: `WORKER_KAFKA_GROUP_ID`
2. a key of any section, in another one or in none: `WORKER_MAX_BATCH_SIZE`
3. what Kafka, Triton and others call it: `WORKER_KAFKA__BROKERS`
4. a key, or such a word, that is spelled nearly so: `WORKER_KAFKA__GRUOP_ID`

A wrong guess sends people the wrong way. So no word is passed over, and none is taken for its opposite.
"""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from worker.settings.sections import SECTIONS, is_secret, variable

PREFIX = "WORKER_"
KNOWN = {variable(section, key): (section, key) for section, cls in SECTIONS.items() for key in cls.model_fields}
SECRET_FILES = {f"{name}_FILE": name for name, setting in KNOWN.items() if is_secret(*setting)}

# Tests on a broker of their own hand it to the workers that they start, with the rest of their environment.
_OF_OUR_TESTS = "WORKER_TEST_BOOTSTRAP_SERVERS"

# What Kubernetes makes of a Service (pkg/kubelet/envvars) and Docker of a `--link`, by the services' names:
# worker, worker-metrics. `_PORT` and `_NAME` alone are common ends of a name, and are known by their values.
_INJECTED = re.compile(
    r"""WORKER_(?:\w+_)?(?:
        SERVICE_(?:HOST|PORT(?:_\w+)?)
      | PORT_\d+_(?:TCP|UDP|SCTP)(?:_\w+)?
      | ENV_\w+
    )""",
    re.VERBOSE,
)
_INJECTED_VALUES = {"_PORT": re.compile(r"(?:tcp|udp|sctp)://.+:\d+"), "_NAME": re.compile(r"/[^/]+/[^/]+")}

# What others call our settings, by the setting; without a unit where any unit means it.
_CALLED = {
    "KAFKA__BOOTSTRAP_SERVERS": "BOOTSTRAP BROKER BROKERS BROKER_LIST METADATA_BROKER_LIST BROKER_ADDRESS "
    "KAFKA_HOST KAFKA_HOSTS KAFKA_PORT KAFKA_SERVERS KAFKA_URL KAFKA_ADDRESS",
    "KAFKA__REQUEST_TOPICS": "TOPIC TOPICS INPUT_TOPIC INPUT_TOPICS SOURCE_TOPIC SOURCE_TOPICS CONSUMER_TOPIC IN_TOPIC",
    "KAFKA__RESPONSE_TOPIC": "OUTPUT_TOPIC RESULT_TOPIC RESULTS_TOPIC ANSWER_TOPIC REPLY_TOPIC SINK_TOPIC OUT_TOPIC "
    "PRODUCER_TOPIC",
    "KAFKA__DEAD_LETTER_TOPIC": "DLQ DLQ_TOPIC DEAD_LETTER_QUEUE DEADLETTERQUEUE_TOPIC_NAME DEAD_LETTERS ERROR_TOPIC",
    "KAFKA__GROUP_ID": "GROUP GROUP_NAME CONSUMER_GROUP CONSUMER_GROUP_ID",
    "KAFKA__GROUP_INSTANCE_ID": "INSTANCE_ID",
    "KAFKA__AUTO_OFFSET_RESET": "OFFSET_RESET STARTING_OFFSETS",
    "KAFKA__MAX_REQUEST_BYTES": "MAX_REQUEST_SIZE",
    "KAFKA__MAX_MESSAGE_BYTES": "MESSAGE_MAX_BYTES MAX_MESSAGE_SIZE",
    "KAFKA__SECURITY_PROTOCOL": "PROTOCOL",
    "KAFKA__SASL_USERNAME": "USER USERNAME SASL_USER",
    "KAFKA__SASL_PASSWORD": "PASSWORD",
    "KAFKA__SSL_CA_LOCATION": "CA_FILE CA_CERT SSL_CA SSL_CAFILE SSL_CA_CERT SSL_TRUSTSTORE_LOCATION",
    "KAFKA__SSL_CERTIFICATE_LOCATION": "CERT_FILE SSL_CERT SSL_CERTFILE SSL_CERTIFICATE SSL_KEYSTORE_LOCATION",
    "KAFKA__SSL_KEY_LOCATION": "KEY_FILE SSL_KEY SSL_KEYFILE",
    "KAFKA__OAUTH_TOKEN_ENDPOINT_URL": "SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL TOKEN_ENDPOINT_URL OAUTH_URL",
    "KAFKA__OAUTH_CLIENT_ID": "SASL_OAUTHBEARER_CLIENT_ID",
    "KAFKA__OAUTH_CLIENT_SECRET": "SASL_OAUTHBEARER_CLIENT_SECRET",
    "KAFKA__OAUTH_SCOPE": "SASL_OAUTHBEARER_SCOPE",
    "MODEL__PATH": "MODEL MODEL_FILE MODEL_URI MODEL_LOCATION ONNX_PATH ONNX_MODEL ONNX_FILE",
    "MODEL__INTRA_OP_NUM_THREADS": "THREADS NUM_THREADS INTRA_OP_THREADS CPU_THREADS",
    "MODEL__FIXED_BATCH": "FIXED_BATCH_SIZE",
    "BATCHING__MAX_BATCH_SIZE": "BATCH_SIZE BATCH MAX_BATCH BATCH_ROWS MAX_BATCH_ROWS",
    "BATCHING__LINGER_MS": "LINGER LINGER_S MAX_QUEUE_DELAY MAX_QUEUE_DELAY_MICROSECONDS MAX_QUEUE_DELAY_MS "
    "BATCH_TIMEOUT BATCH_TIMEOUT_MS BATCH_TIMEOUT_MICROS MAX_BATCH_DELAY BATCH_DELAY_MS MAX_DELAY_MS "
    "MAX_WAIT_MS BATCH_WAIT_MS BATCH_WINDOW_MS",
    "BATCHING__TIMEOUT_MS": "TIMEOUT REQUEST_TIMEOUT REQUEST_TIMEOUT_MS DEFAULT_TIMEOUT_MICROSECONDS QUEUE_TIMEOUT",
    "BATCHING__MAX_INFLIGHT_RECORDS": "MAX_INFLIGHT MAX_INFLIGHT_REQUESTS MAX_QUEUE_SIZE",
    "BATCHING__LANES": "THREADS NUM_THREADS INSTANCES INSTANCE_COUNT CONCURRENCY MAX_CONCURRENCY INFERENCE_THREADS",
    "DELIVERY__GUARANTEE": "PROCESSING_GUARANTEE SEMANTICS EXACTLY_ONCE AT_LEAST_ONCE",
    "DELIVERY__ORDER": "ORDERING",
    "DELIVERY__COMMIT_INTERVAL_MS": "COMMIT_INTERVAL AUTO_COMMIT_INTERVAL_MS",
    "DELIVERY__DRAIN_TIMEOUT_S": "TIMEOUT SHUTDOWN_TIMEOUT GRACEFUL_TIMEOUT GRACEFUL_SHUTDOWN_TIMEOUT GRACE_PERIOD",
    "TELEMETRY__HTTP_PORT": "PORT METRICS_PORT PROMETHEUS_PORT HEALTH_PORT",
    "TELEMETRY__HTTP_ADDRESS": "HOST ADDRESS HTTP_HOST METRICS_HOST BIND_ADDRESS LISTEN_ADDRESS",
    "TELEMETRY__LOG_LEVEL": "LEVEL LOGGING_LEVEL VERBOSITY",
    "TELEMETRY__LOG_FORMAT": "FORMAT LOGGING_FORMAT",
    "TELEMETRY__TRACING": "TRACE TRACING_ENABLED ENABLE_TRACING OTEL",
}

# Near, and something else that a model has: how many operators run at once.
_OTHERS_OWN = {"INTEROPNUMTHREADS", "INTEROPTHREADS"}

# The least likeness (difflib's ratio) of two keys, a letter or two apart, and of two words in them. `MEMORY` and `MEM`
# are alike, `MIN` and `MAX`, `INPUT` and `OUTPUT`, `TOKENS` and `BYTES` are not.
_NEAR = 0.82
_NEAR_WORD = 0.6
_UNITS = {"MS", "SEC", "SECOND", "SECONDS", "MICROS", "MICROSECONDS", "MILLIS", "MILLISECONDS"}


class Guess(NamedTuple):
    """The variables that a name may have been meant for. `is_sure`: it has a setting's very words, more than one."""

    variables: tuple[str, ...] = ()
    is_sure: bool = False


def is_ours(name: str, value: str) -> bool:
    """Whether a variable of the environment is meant for this worker; an empty one counts as not set.

    In lower case only what is nearly a setting: such names are the variables of people's own scripts.
    """
    if not value or name == _OF_OUR_TESTS or not name.upper().startswith(PREFIX):
        return False
    if name in KNOWN or name in SECRET_FILES:
        return True
    return not _is_injected(name, value) if name.startswith(PREFIX) else bool(meant(name).variables)


def _is_injected(name: str, value: str) -> bool:
    end = name[name.rindex("_") :]
    has_its_value = end in _INJECTED_VALUES and _INJECTED_VALUES[end].fullmatch(value)
    return bool(has_its_value or _INJECTED.fullmatch(name))


def meant(name: str) -> Guess:
    """What a variable's name, in whatever spelling, was meant to be."""
    name = name.upper()
    whole = _squeezed(name.removeprefix("WORKER"))
    if whole in _WHOLE:
        return Guess((_WHOLE[whole],), is_sure=True)
    keys = list(dict.fromkeys(_keys(name)))
    for names, is_ours in ((_KEYS, True), (_OTHERS, False)):
        for key in (name.removeprefix(PREFIX), *keys):
            if found := names.get(_squeezed(key)):
                return Guess(tuple(found), is_sure=is_ours and "_" in key)
    return Guess(next(filter(None, map(_near, keys)), ()))


def _keys(name: str) -> Iterator[str]:
    """What may be the name's key: all behind `__`, behind what looks like a section, or everything."""
    bare = name.removeprefix("WORKER").strip("_")
    for separator in ("__", "_"):
        section, _, key = bare.partition(separator)
        is_section = separator == "__" or difflib.get_close_matches(section, _SECTIONS, cutoff=_NEAR)
        if key and is_section:
            yield key.strip("_")
    yield bare


def _near(key: str) -> tuple[str, ...]:
    if _squeezed(key) in _OTHERS_OWN:
        return ()
    for found in difflib.get_close_matches(_squeezed(key), _SPELLED, n=5, cutoff=_NEAR):
        if _has_the_same_words(key, _SPELLED[found]):
            return tuple(_KEYS.get(found) or _OTHERS[found])
    return ()


def _has_the_same_words(key: str, other: str) -> bool:
    """Each has its like in the other. A unit is no such word, nor is a letter."""
    ours, theirs = _words(key), _words(other)
    return all(
        difflib.get_close_matches(word, those, cutoff=_NEAR_WORD)
        for these, those in ((ours, theirs), (theirs, ours))
        for word in these
    )


def _words(name: str) -> set[str]:
    return {word for word in re.split(r"[\W_]+", name) if len(word) > 1} - _UNITS


def _squeezed(name: str) -> str:
    return re.sub(r"[\W_]+", "", name)


def _by_key() -> Mapping[str, list[str]]:
    found = defaultdict(list)
    for name in (*KNOWN, *SECRET_FILES):
        found[_squeezed(name.partition("__")[2])].append(name)
    return dict(found)


def _by_other_names() -> Mapping[str, list[str]]:
    found = defaultdict(list)
    for setting, others in _CALLED.items():
        for other in others.split():
            found[_squeezed(other)].append(f"{PREFIX}{setting}")
    return dict(found)


_SECTIONS = [section.upper() for section in SECTIONS]
# By the letters alone: what a name may be, and how each key is written.
_WHOLE = {_squeezed(name.removeprefix(PREFIX)): name for name in (*KNOWN, *SECRET_FILES)}
_KEYS = _by_key()
_OTHERS = _by_other_names()
_SPELLED = {
    _squeezed(key): key
    for key in (*" ".join(_CALLED.values()).split(), *(name.partition("__")[2] for name in (*KNOWN, *SECRET_FILES)))
}
