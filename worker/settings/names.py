"""Which names in the environment are settings, and which setting a name that is none was meant to be. Pure.

Every `WORKER_*` is ours but what a platform injects for a service whose name begins with "worker". A guess ends at the
first of these that finds something: the whole name without its underscores (`WORKER_KAFKA_GROUP_ID`), a key of any
section (`WORKER_MAX_BATCH_SIZE`), what others call it (`WORKER_KAFKA__BROKERS`), a key spelled nearly so
(`WORKER_KAFKA__GRUOP_ID`). No guess is better than a wrong one: each word of the name must be like one of the setting.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping

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

# What others call our settings, where the letters do not say it.
_CALLED = {
    "KAFKA__BOOTSTRAP_SERVERS": "BROKERS BROKER_LIST KAFKA_HOST KAFKA_SERVERS KAFKA_URL",
    "KAFKA__REQUEST_TOPICS": "TOPIC TOPICS INPUT_TOPIC SOURCE_TOPIC",
    "KAFKA__RESPONSE_TOPIC": "OUTPUT_TOPIC RESULT_TOPIC REPLY_TOPIC",
    "KAFKA__DEAD_LETTER_TOPIC": "DLQ DLQ_TOPIC ERROR_TOPIC",
    "KAFKA__GROUP_ID": "GROUP CONSUMER_GROUP",
    "KAFKA__SASL_USERNAME": "USER USERNAME",
    "KAFKA__SASL_PASSWORD": "PASSWORD",
    "KAFKA__SSL_CA_LOCATION": "CA_FILE CA_CERT SSL_CA SSL_CAFILE",
    "MODEL__PATH": "MODEL MODEL_FILE ONNX_PATH",
    "MODEL__INTRA_OP_NUM_THREADS": "THREADS NUM_THREADS",
    "BATCHING__LANES": "THREADS NUM_THREADS INSTANCES CONCURRENCY",
    "BATCHING__MAX_BATCH_SIZE": "BATCH_SIZE MAX_BATCH BATCH_ROWS",
    "BATCHING__LINGER_MS": "LINGER MAX_QUEUE_DELAY_MICROSECONDS BATCH_TIMEOUT_MS MAX_WAIT_MS",
    "BATCHING__TIMEOUT_MS": "TIMEOUT REQUEST_TIMEOUT_MS",
    "DELIVERY__GUARANTEE": "EXACTLY_ONCE AT_LEAST_ONCE",
    "DELIVERY__DRAIN_TIMEOUT_S": "TIMEOUT SHUTDOWN_TIMEOUT GRACE_PERIOD",
    "TELEMETRY__HTTP_PORT": "PORT METRICS_PORT",
    "TELEMETRY__HTTP_ADDRESS": "HOST ADDRESS",
    "TELEMETRY__LOG_LEVEL": "LEVEL VERBOSITY",
}

# The least likeness (difflib's ratio) of two keys, a letter or two apart, and of two words in them. `MEMORY` and `MEM`
# are alike, `MIN` and `MAX`, `INPUT` and `OUTPUT`, `TOKENS` and `BYTES` are not.
_NEAR = 0.82
_NEAR_WORD = 0.6
# As near to `INTRA` as a typing error is, and another thing.
_NEVER_NEAR = "INTER"
_UNITS = {"MS", "SEC", "SECOND", "SECONDS", "MICROS", "MICROSECONDS", "MILLIS", "MILLISECONDS"}


def is_ours(name: str, value: str) -> bool:
    """Whether a variable of the environment is meant for this worker; an empty one counts as not set.

    In lower case only what is nearly a setting: such names are the variables of people's own scripts.
    """
    if not value or name == _OF_OUR_TESTS or not name.upper().startswith(PREFIX):
        return False
    if name in KNOWN or name in SECRET_FILES:
        return True
    return not _is_injected(name, value) if name.startswith(PREFIX) else bool(meant(name))


def _is_injected(name: str, value: str) -> bool:
    of_value = _INJECTED_VALUES.get(name[name.rindex("_") :])
    return bool((of_value and of_value.fullmatch(value)) or _INJECTED.fullmatch(name))


def meant(name: str) -> tuple[str, ...]:
    """The variables that a name, in whatever spelling, may have been meant for."""
    name = name.upper().removeprefix("WORKER")
    if whole := _WHOLE.get(_squeezed(name)):
        return whole
    keys = list(_keys(name))
    exact = (names.get(_squeezed(key)) for names in (_KEYS, _OTHERS) for key in reversed(keys))
    return next(filter(None, exact), None) or next(filter(None, map(_near, keys)), ())


def _keys(name: str) -> Iterator[str]:
    """What may be the name's key: all behind `__`, behind what looks like a section, or everything."""
    bare = name.strip("_")
    section, _, key = bare.partition("__")
    if key:
        yield key
    section, _, key = bare.partition("_")
    if difflib.get_close_matches(section, map(str.upper, SECTIONS), cutoff=_NEAR):
        yield key
    yield bare


def _near(key: str) -> tuple[str, ...]:
    for found in difflib.get_close_matches(_squeezed(key), _SPELLED, n=5, cutoff=_NEAR):
        if _has_the_same_words(_words(key), _words(_SPELLED[found])):
            return _KEYS.get(found) or _OTHERS[found]
    return ()


def _has_the_same_words(ours: set[str], theirs: set[str]) -> bool:
    """Each has its like in the other."""
    return _NEVER_NEAR not in ours and all(
        difflib.get_close_matches(word, those, cutoff=_NEAR_WORD)
        for these, those in ((ours, theirs), (theirs, ours))
        for word in these
    )


def _words(name: str) -> set[str]:
    """A unit is no such word, nor is a letter."""
    return {word for word in re.split(r"[\W_]+", name) if len(word) > 1} - _UNITS


def _squeezed(name: str) -> str:
    return re.sub(r"[\W_]+", "", name)


def _by_letters(named: Iterable[tuple[str, str]]) -> Mapping[str, tuple[str, ...]]:
    """The variables of each spelling, found by its letters alone."""
    found: dict[str, tuple[str, ...]] = {}
    for spelling, name in named:
        found[_squeezed(spelling)] = (*found.get(_squeezed(spelling), ()), name)
    return found


_OURS = [(name.partition("__")[2], name) for name in (*KNOWN, *SECRET_FILES)]
_THEIRS = [(other, f"{PREFIX}{setting}") for setting, others in _CALLED.items() for other in others.split()]
_WHOLE = _by_letters((name.removeprefix(PREFIX), name) for _, name in _OURS)
_KEYS, _OTHERS = _by_letters(_OURS), _by_letters(_THEIRS)
_SPELLED = {_squeezed(spelling): spelling for spelling, _ in (*_THEIRS, *_OURS)}
