"""The client's errors as a worker sees them: a final refusal, a lost topic, an unreadable record or a log line.

The client recovers from all other errors by itself: it reconnects, retries and rejoins.
"""
# ruff: noqa: SLF001  # librdkafka's own codes begin with an underscore; they are public

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from worker.core.failures import BadConfiguration
from worker.core.secrets import without_login

FATAL = KafkaError._FATAL

# There is no such topic, or no such partition of it.
GONE = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})

# An unknown partition does not count: a broker that the controller has just let in names topics without partitions for
# a moment.
_CLOSED = GONE - {KafkaError._UNKNOWN_PARTITION} | {KafkaError.TOPIC_AUTHORIZATION_FAILED}

UNREADABLE = frozenset({KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, KafkaError._NOT_IMPLEMENTED})

# Errors that close the group or its topics to us until an operator acts, each with its cure.
_CURES: Mapping[int, str] = {
    KafkaError.FENCED_INSTANCE_ID: "another replica has the same WORKER_KAFKA__GROUP_INSTANCE_ID; each needs its own",
    KafkaError.UNRELEASED_INSTANCE_ID: "a replica with this WORKER_KAFKA__GROUP_INSTANCE_ID is in the group: end it",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "grant this client READ on the group",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant this client READ on the request topics",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "grant this client what the broker's authorizer log names as denied",
    KafkaError.OFFSET_METADATA_TOO_LARGE: "the note of an offset takes 3 bytes: raise offset.metadata.max.bytes",
    KafkaError.INVALID_GROUP_ID: "choose another WORKER_KAFKA__GROUP_ID",
    KafkaError._AUTO_OFFSET_RESET: (
        "WORKER_KAFKA__AUTO_OFFSET_RESET is `error`: set the group's offset by hand, or choose `earliest` or `latest`"
    ),
    FATAL: "start again",
}

REPEAT_EVERY = 10.0  # seconds: six lines a minute tell that a broker is still away

# Facilities of librdkafka's warnings on which an operator cannot or need not act.
_QUIET = frozenset({"CONFWARN", "TERMINATE", "MOCK"})

# The warning while the broker writes the last transaction's markers. The client waits and asks again by itself.
_MARKERS_FACILITIES, _MARKERS = frozenset({"ADDOFFSETS", "ADDPARTS"}), "another concurrent operation on the same"


def words_of(error: Exception) -> str:
    """The text of any exception. A `KafkaException` gives its error's text, not Python's form of that error."""
    return str(error.args[0].str()) if error.args and isinstance(error.args[0], KafkaError) else str(error)


def kafka_error(failure: BaseException) -> KafkaError | None:
    """The client's error in an exception, None without one. A broken producer wraps it in a `SystemError`."""
    for error in (failure, failure.__cause__):
        if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
            return error.args[0]
    return None


def is_closed(error: KafkaError) -> bool:
    """True if the topic, or the broker, is closed to this client until an operator acts."""
    return error.fatal() or error.code() in _CLOSED


@contextmanager
def configuring(client: str) -> Iterator[None]:
    """Wrap the making of a client: raises `BadConfiguration` when the library refuses its configuration."""
    try:
        yield
    except (KafkaException, ValueError, TypeError) as error:
        raise BadConfiguration(
            f"WORKER_KAFKA__CONFIG: the {client} refuses its configuration: {words_of(error)}"
        ) from error


def refusal(error: KafkaError) -> str | None:
    """The message that Kafka refuses this consumer for good, with the cure; None for any other error."""
    cure = _CURES.get(error.code())
    if cure is None and not error.fatal():
        return None
    return f"Kafka refuses this consumer: {error.str()}; {_cure_within(error.str()) or cure or 'start again'}"


def _cure_within(said: str) -> str | None:
    """The cure of a refusal under KIP-848: a fatal error of the client, with the broker's error in its text."""
    return next((cure for code, cure in _CURES.items() if KafkaError(code).str() in said), None)


class ClientLog:
    """Passes the clients' own lines (`log`) and the worker's observations (`tell`) on to a logger.

    librdkafka repeats itself: a broker that is away fails fifty connection attempts in two seconds. Each kind of line
    passes once, then at most every `REPEAT_EVERY` seconds, with the number of lines left out.
    """

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._quiet_until: dict[str, float] = {}
        self._left_out: dict[str, int] = {}
        self.last = ""  # the last line about a failure, for messages that must give a reason

    def log(self, level: int, _template: str, facility: str, _client: str, text: str) -> None:
        """Called by the client: `text` begins with the name of the thread, and that names the thread's broker."""
        if facility in _QUIET or (facility in _MARKERS_FACILITIES and _MARKERS in text):
            return
        thread, _, said = without_login(text).partition("]: ")
        # A connection that the broker closed is logged at level info, and may be the only sign.
        if level >= logging.WARNING or facility == "FAIL":
            self.last = said or text
        if level >= logging.WARNING:
            self._tell(level, facility + thread, f"{facility}: {self.last}")

    def tell(self, kind: str, text: str) -> None:
        self._tell(logging.WARNING, kind, text)

    def _tell(self, level: int, kind: str, text: str) -> None:
        now = self._clock()
        if now < self._quiet_until.get(kind, 0.0):
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return
        self._quiet_until[kind] = now + REPEAT_EVERY
        left_out = self._left_out.pop(kind, 0)
        self._logger.log(level, "%s%s", text, f" ({left_out} more like it since the last line)" if left_out else "")
