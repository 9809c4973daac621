"""Every failure the worker knows, sorted by verdict: reject, retry, stop.

| verdict | means | carried by |
|---|---|---|
| reject | this request never again: it is answered with an error and dead-lettered | `Reject` |
| retry  | the run failed: smaller batches are tried until the request that fails is alone | `RunFailure` |
| stop   | this process is done; nothing unsettled has been committed | `Stop` and its subclasses |
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import ClassVar


class Code(StrEnum):
    """Error codes of an answer: the canonical gRPC names, as Open Inference Protocol servers use them."""

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    NOT_FOUND = "NOT_FOUND"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    INTERNAL = "INTERNAL"


class Reject(Exception):
    """One request is wrong by its own evidence. `message` tells its publisher what was expected and what came."""

    def __init__(self, message: str, code: Code = Code.INVALID_ARGUMENT) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class RowsLost(ValueError):
    """An output of one run has other rows than went in: it is not known which row belongs to which request."""

    def __init__(self, output: str, rows: int, shape: tuple[int, ...]) -> None:
        super().__init__(f"output {output}: {rows} row{'s' if rows > 1 else ''} went in, shape {shape} came out")


@dataclass(frozen=True, slots=True)
class RunFailure:
    """Why one inference gave no usable output. A value, not an exception: a lane returns it.

    `logged`: another message for the log, because the publisher's may quote a value.
    """

    message: str
    # RESOURCE_EXHAUSTED when the device had no memory left; INVALID_ARGUMENT when an operator takes no such value.
    code: Code = Code.INTERNAL
    logged: str | None = None
    loses_rows: bool = False  # an output had other rows than went in

    @property
    def for_log(self) -> str:
        """The message that others than the publisher may read."""
        return self.message if self.logged is None else self.logged


class Stop(Exception):
    """This process must end. The message says what happened and what the operator can do."""

    exit_code: ClassVar[int] = 1


class BadConfiguration(Stop):
    """Settings, topics, access or model do not fit; found before the group is joined."""

    exit_code = 2


class DeadlineMissed(Stop):
    """The drain or the watchdog ran out of time; unsettled records come again."""

    exit_code = 3


class KafkaFatal(Stop):
    """Kafka refuses this client for good: fenced, not authorised, or a record it will never take."""

    exit_code = 4


class ReplyRefused(KafkaFatal):
    """A topic that requests name refused an answer, and its owner may see to it that it does so after each start."""

    def __init__(self, message: str, topic: str) -> None:
        super().__init__(message)
        self.topic = topic


class ModelBroken(Stop):
    """The model or its device fails on data that ran before; the suspect requests stay unanswered."""

    exit_code = 5


class TooManyRejections(Stop):
    """The operator's `REJECTION_LIMIT` was reached: this model expects another stream."""

    exit_code = 6


class Incomplete(Stop):
    """A command did a part of its work and says which: answers that did not come, records that were not sent."""

    exit_code = 7


MOST_LISTED = 3  # a model may have an input for each of 500 columns


def listed(things: Iterable[object]) -> str:
    """The first three, and how many more there are, for a message."""
    rest = iter(things)
    named = ", ".join(map(str, islice(rest, MOST_LISTED)))
    more = sum(1 for _ in rest)
    return f"{named} and {more} more" if more else named
