"""All failures that the worker knows, by their verdict: reject, retry, stop.

| verdict | means | carried by |
|---|---|---|
| reject | this request never again: it is answered with an error and dead-lettered | `Reject` |
| retry  | the run failed: smaller batches are tried until the request that fails is alone | `RunFailure` |
| stop   | this process is done; nothing unsettled has been committed | `Stop` and its subclasses |
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Any, ClassVar, NamedTuple


class Code(StrEnum):
    """Error codes of an answer: the canonical gRPC names, as Open Inference Protocol servers use them."""

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    NOT_FOUND = "NOT_FOUND"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    INTERNAL = "INTERNAL"


class Reject(Exception):
    """One request is wrong, whatever the others hold. `message` tells its publisher what was expected and what came."""

    def __init__(self, message: str, code: Code = Code.INVALID_ARGUMENT) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class RowsLost(ValueError):
    """An output has another number of rows than went in, so the request of a row is unknown."""

    def __init__(self, output: str, rows: int, shape: tuple[int, ...]) -> None:
        super().__init__(f"output {output}: {rows} row{'s' if rows > 1 else ''} went in, shape {shape} came out")


# Faults of one run. They share a message between two processes (400 KiB), and each may say 200 characters.
MOST_FAULTS = 256
# Arrays of numpy, which this module does not import.
Outputs = Sequence[Any]


class RowFault(NamedTuple):
    """Why one row of a batch gets no result, whatever the others hold. `logged` as in `RunFailure`."""

    code: Code
    message: str
    logged: str | None = None


@dataclass(frozen=True, slots=True)
class RunFailure:
    """Why one inference gave no usable output. It is a value and no exception, because a lane returns it.

    `logged` is another message for the log, where `message` may quote a publisher's value.
    """

    message: str
    # RESOURCE_EXHAUSTED if the device had no memory left; INVALID_ARGUMENT if an operator does not take a value.
    code: Code = Code.INTERNAL
    logged: str | None = None
    loses_rows: bool = False  # an output had another number of rows than went in
    ended_host: bool = False  # the process that has the model died of this run or of another beside it, or was killed
    faults: Mapping[int, RowFault] = field(default_factory=dict)  # by row; the other rows can run
    left: Collection[int] = ()  # rows that would have taken long, and did not run yet
    # They belong to the rows without a fault that were not left, in their order; None: these have not run, or in vain.
    outputs: Outputs | None = field(default=None, compare=False)

    @property
    def for_log(self) -> str:
        """The message without the publisher's values, for the log."""
        return self.message if self.logged is None else self.logged

    @property
    def is_of_data(self) -> bool:
        """True if publishers are to blame for all of it: no model failed."""
        return self.is_of_rows and all(fault.code is not Code.INTERNAL for fault in self.faults.values())

    @property
    def is_of_rows(self) -> bool:
        """True if single rows have no result."""
        return bool(self.faults or self.left)


def failure_of_rows(
    faults: Mapping[int, RowFault], left: Collection[int] = (), outputs: Outputs | None = None
) -> RunFailure:
    """The failure of a run of which these rows have no result. Of very many faults it has the first; others are left.

    It tells the first fault that no publisher is to blame for, else the first. `outputs`: of the other rows.
    """
    rows = sorted(faults)
    if not rows:
        return RunFailure(f"{len(left)} rows wait", left=left, outputs=outputs)
    _, message, logged = min((faults[row] for row in rows), key=lambda fault: fault.code is not Code.INTERNAL)
    those = f"{len(rows)} row{'s' if len(rows) > 1 else ''} can have no result"
    return RunFailure(
        f"{those}: {message}",
        logged=f"{those}: {message if logged is None else logged}",
        faults={row: faults[row] for row in rows[:MOST_FAULTS]},
        left=(*left, *rows[MOST_FAULTS:]),
        outputs=outputs,
    )


class Stop(Exception):
    """This process must end. The message says what happened and what the operator can do."""

    exit_code: ClassVar[int] = 1


class BadConfiguration(Stop):
    """Settings, topics, access or model do not fit. The worker finds that before it joins the group."""

    exit_code = 2


class DeadlineMissed(Stop):
    """The drain or the watchdog ran out of time. Unsettled records are read again."""

    exit_code = 3


class KafkaFatal(Stop):
    """Kafka refuses this client for good: it is fenced or not authorised, or Kafka will never take a record."""

    exit_code = 4


class ReplyRefused(KafkaFatal):
    """A topic that requests name refused an answer. Its owner can make it do so after each start."""

    def __init__(self, message: str, topic: str) -> None:
        super().__init__(message)
        self.topic = topic


class ModelBroken(Stop):
    """The model or its device fails on data that ran before. The requests that failed stay unanswered."""

    exit_code = 5


class DeviceLost(ModelBroken):
    """The device takes no more runs of this process. `why` is the reason alone."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"the device is lost: {why}. What ran on it is unanswered and will be read again; "
            "if a restart does not help, look at the machine's GPU (nvidia-smi, dmesg)"
        )
        self.why = why


class TooManyRejections(Stop):
    """The limit of rejections in a row (`REJECTION_LIMIT`, or a new group's) is reached: the stream must be wrong."""

    exit_code = 6


class Incomplete(Stop):
    """A command did only a part of its work, and says which: some answers did not come, or some records did not go."""

    exit_code = 7


MOST_LISTED = 3  # a model may have an input for each of 500 columns


def listed(things: Iterable[object]) -> str:
    """The first three things, and how many more there are, for a message."""
    rest = iter(things)
    named = ", ".join(map(str, islice(rest, MOST_LISTED)))
    more = sum(1 for _ in rest)
    return f"{named} and {more} more" if more else named
