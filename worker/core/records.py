"""The values of single records, and the small values that several rooms share.

    Record ──read──▶ Chunk ──stack──▶ Batch ──run──▶ Prediction ──write──▶ answers, as messages
       └──────────────────────── Rejection ──────────refuse──────────────────▶

A record goes forward once; only its outcome comes back. `chunk.py` has the values that stand for many records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from numpy.typing import NDArray

from worker.core.failures import Code

Array = NDArray[Any]
Headers = Sequence[tuple[str, bytes | None]]
# The name of the one header that replaces all, if one of them has a name that is not UTF-8: the client reads none then.
UNREADABLE_HEADER = "\N{REPLACEMENT CHARACTER}"
UNREADABLE_HEADERS: Headers = ((UNREADABLE_HEADER, b"the name of a header is not UTF-8"),)

# All rows of one tensor of one request. Numbers: a C-ordered little-endian buffer. BYTES: a flat list.
Tensor = bytes | memoryview | list[str]

# A value that an operator gives for every element of a tensor: its default, or its padding.
Value = bool | int | float | str


class Partition(NamedTuple):
    """One partition of one topic; prints as `topic/partition`."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.number}"


class Record(NamedTuple):
    """A record as Kafka gave it. `timestamp_ms` is milliseconds since the epoch, None where the record carries none.

    `unreadable` says why the client could not read the record (a broken compressed set); then key, value and headers
    are empty.
    """

    partition: Partition
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int | None
    unreadable: str | None = None

    @property
    def source(self) -> str:
        """The record's name for ever: `topic/partition/offset`."""
        topic, number = self.partition
        return f"{topic}/{number}/{self.offset}"


class ModelKey(NamedTuple):
    """The model and version that run a request. The answer names them."""

    name: str
    version: str


class BatchKind(NamedTuple):
    """The model and the shapes of a batch. Batches of one kind and size take equally long and equally much memory.

    `shapes` are the non-batch dimensions of each input, padded where the axis is padded.
    """

    model: ModelKey
    shapes: tuple[tuple[int, ...], ...]


class RequestedOutput(NamedTuple):
    """One entry of an Open Inference Protocol request's `outputs`. `binary` asks for the binary-data form."""

    name: str
    binary: bool


class ReplyTo(NamedTuple):
    """Where a requester wants its answer. `partition` None: the partition of its key."""

    topic: str
    partition: int | None


class ReplyForm(NamedTuple):
    """How an answer is written. Equal forms are one object where possible: then answers are written together.

    `outputs` are the wanted ones; empty: all. `to` None: the response topic. `states_rows`: an answer of plain rows has
    headers that say what they are, because its request had them.
    """

    content_type: str
    outputs: tuple[RequestedOutput, ...] = ()
    to: ReplyTo | None = None
    states_rows: bool = False


class Ids(NamedTuple):
    """The means by which a requester knows its answer. `request_id` None stands for the record's source.

    The answer's body repeats `body_id` as it was sent. `echo` holds request headers that go back unchanged.
    """

    request_id: str | None = None
    body_id: str | None = None
    echo: tuple[tuple[str, bytes], ...] = ()


NO_IDS = Ids()


class StateUse(StrEnum):
    """A use of the key's state that the header `state` asks for; without it the request reads and writes the state."""

    RESET = "reset"  # the request runs on the initial state
    DELETE = "delete"  # the state is forgotten after the answer
    READ = "read"  # the new state is not written


class Timeout(NamedTuple):
    """An answer is useless `seconds` after the record's timestamp, and at `until`, in seconds since the epoch.

    None: the request does not say. If it says both, the earlier counts.
    """

    seconds: float | None = None
    until: float | None = None


class ClosedBy(StrEnum):
    """Why a batch closed: each has exactly one reason."""

    SIZE = "size"
    BYTES = "bytes"
    TOKENS = "tokens"
    MEMORY = "memory"
    LINGER = "linger"
    PRESSURE = "pressure"
    DRAIN = "drain"


class HostEnd(StrEnum):
    """Why the process that has the model ended, while the worker went on."""

    CRASH = "crash"  # a signal of its own making, or an exit
    HANG = "hang"  # a run took longer than RUN_TIMEOUT_S
    KILLED = "killed"  # by the kernel, where memory ran out, or by hand


class Rejection(NamedTuple):
    """Why one record is answered with an error, or, if `is_silent`, not at all: the operator skips null values."""

    record: Record
    code: Code
    message: str
    form: ReplyForm
    ids: Ids = NO_IDS
    is_silent: bool = False


def nothing_owed(partition: Partition, offset: int) -> Rejection:
    """The outcome for an offset that holds no request."""
    record = Record(partition, offset, None, None, (), None)
    return Rejection(record, Code.INVALID_ARGUMENT, "no request", ReplyForm(""), is_silent=True)


class Message(NamedTuple):
    """One record to produce. Without a key it goes to partition `source_partition mod n`, so order holds there too.

    If `partition` is set, the requester chose it, and it goes before the other two.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    source_partition: int
    partition: int | None = None


# A message as a plain tuple: a `zip` makes many of them at once, for a tenth of the price (0.05 µs each).
Fields = tuple[str, bytes | None, bytes | None, list[tuple[str, bytes | None]] | None, int, int | None]
# The answer to one record: its message, or why it is refused. A refusal becomes messages only when it leaves, because
# rejections in a row count in that order (`rejections.py`).
Answer = Fields | Rejection


class CommitResult(NamedTuple):
    """The result of one asynchronous commit: next offsets that Kafka took, and why it did not take others."""

    committed: Mapping[Partition, int]
    failed: Mapping[Partition, str]


class Standing(NamedTuple):
    """How far a consumer has come in a partition: the next offset to commit, and the log's end as last seen."""

    next_offset: int
    end: int


class Ending(NamedTuple):
    """How a transaction ended: committed, or (`failure` says why) taken back or in doubt. The end took `seconds`."""

    failure: str | None
    seconds: float
