"""The values that travel through the worker, in the order in which they are made.

    Record ──decode──▶ Request ──stack──▶ Batch ──run──▶ Prediction ─┐
       └─────────────────── Rejection ─────────────────────────────▶ Outcome ──encode──▶ Message

A record goes forward once; only its outcome comes back. Each of these is built once per record. So `Record`, `Message`
and the outcomes are NamedTuples, and `Request` is not frozen: a frozen dataclass of eight fields costs 1.9 µs to build,
these cost 0.3 µs. By agreement a request is not written to once it has its `place`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

from worker.core.failures import Code, RunFailure

Array = NDArray[Any]
Headers = Sequence[tuple[str, bytes | None]]
# The name of the one header that replaces all, if one of them has a name that is not UTF-8: the client reads none then.
UNREADABLE_HEADER = "\N{REPLACEMENT CHARACTER}"
UNREADABLE_HEADERS: Headers = ((UNREADABLE_HEADER, b"the name of a header is not UTF-8"),)

# All rows of one tensor of one request. Numbers: a C-ordered little-endian buffer. BYTES: a flat object array of str.
Tensor = bytes | memoryview | Array

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


class Reply(NamedTuple):
    """How a requester wants its answer.

    `request_id` None stands for the record's source. The answer's body repeats `body_id` as it was sent. `outputs` are
    the wanted ones; empty: all. `echo` holds request headers that go back unchanged. `to` None: the response topic.
    `states_rows`: an answer of plain rows has headers that say what they are, because its request had them.
    """

    content_type: str
    request_id: str | None = None
    body_id: str | None = None
    outputs: tuple[RequestedOutput, ...] = ()
    echo: tuple[tuple[str, bytes], ...] = ()
    to: ReplyTo | None = None
    states_rows: bool = False


class StateUse(StrEnum):
    """A use of the key's state, which the header `state` asks for, other than to read and write it."""

    RESET = "reset"  # the request runs on the initial state
    DELETE = "delete"  # the state is forgotten after the answer
    READ = "read"  # the new state is not written


class Timeout(NamedTuple):
    """When an answer is useless: `seconds` after the record's timestamp, and at `until`, seconds since the epoch.

    None: the request does not say. If it says both, the earlier counts.
    """

    seconds: float | None = None
    until: float | None = None


@dataclass(slots=True, eq=False)
class Request:
    """One record decoded and judged: ready to share a batch with requests of equal `shapes`.

    `tensors` holds one entry per model input in the signature's order, each with all `rows` of the request. `shapes`
    holds the non-batch dimensions of each. `size` is the number of bytes that the request holds in memory.
    """

    record: Record
    rows: int
    tensors: tuple[Tensor, ...]
    shapes: tuple[tuple[int, ...], ...]
    reply: Reply
    size: int
    model: ModelKey
    place: Place | None = None  # where its outcome belongs; given once, when the record is taken
    reassembly: Reassembly | None = None  # set on the pieces of a request larger than a batch
    timeout: Timeout | None = None  # None: any answer is wanted, however late
    deadline: float | None = None  # the timeout's end on the loop's clock; given once, when the record is taken
    state: StateUse | None = None  # None: it reads and writes the state of its key, if the model has states

    def parts(self) -> Sequence[Tensor]:
        """The parts of the tensor of the model's only input, in the order of its rows."""
        return self.tensors


class Reassembly(Protocol):
    """Makes one outcome of the pieces of a request that is larger than a batch (`core/tensors/stacking.py`)."""

    request: Request
    is_over: bool
    carried: Sequence[Array] | None  # the state that the last piece left to the next, one row of each tensor

    def collect(self, piece: Request, outcome: Outcome) -> Outcome | None:
        """The whole request's outcome, once, when it is known; None before and after."""


class ClosedBy(StrEnum):
    """Why a batch closed: each has exactly one reason."""

    SIZE = "size"
    BYTES = "bytes"
    TOKENS = "tokens"
    MEMORY = "memory"
    LINGER = "linger"
    PRESSURE = "pressure"
    DRAIN = "drain"


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests that share one inference, stacked. `feeds` maps input names to arrays of shape (rows, *dims)."""

    requests: Sequence[Request]
    feeds: Mapping[str, Array]
    rows: int
    closed_by: ClosedBy
    states: Mapping[str, Array] = field(default_factory=dict)  # the states of the rows' keys, by input, as in `feeds`

    @property
    def all_feeds(self) -> Mapping[str, Array]:
        """All inputs of the model: the requests' tensors and the states."""
        return {**self.feeds, **self.states} if self.states else self.feeds

    @property
    def model(self) -> ModelKey:
        """The model that runs the batch: all its requests are for one model in one version."""
        return self.requests[0].model

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The non-batch dimensions of each input as the model gets it, padding included."""
        return tuple([feed.shape[1:] for feed in self.feeds.values()])

    @property
    def kind(self) -> BatchKind:
        return BatchKind(self.model, self.shapes)


class RunStates:
    """The next states that one run gave: one array of shape (rows of the run, *dims) per tensor.

    `values` are the rows' states in the form of the changelog, set when they are written (`worker/state/`).
    """

    __slots__ = ("arrays", "values")

    def __init__(self, arrays: Sequence[Array]) -> None:
        self.arrays = arrays
        self.values: Sequence[bytes | None] = ()

    def row(self, at: int) -> list[Array]:
        """The states of one row: arrays of shape (1, *dims)."""
        return [array[at : at + 1] for array in self.arrays]


class Prediction(NamedTuple):
    """The model's answer to one request: rows `start` to `stop` (None: all) of the outputs of one run.

    `run` holds one array of shape (rows of the run, *dims) per model output, in signature order. `outputs` cuts out the
    request's own rows only when asked, because some encodings do not need them.
    """

    request: Request
    run: Sequence[Array]
    start: int = 0
    stop: int | None = None
    states: RunStates | None = None

    @property
    def outputs(self) -> tuple[Array, ...]:
        """The request's own rows: one view of shape (rows, *dims) per model output."""
        return tuple([output[self.start : self.stop] for output in self.run])


class Rejection(NamedTuple):
    """Why one record is answered with an error, or, if `is_silent`, not at all: the operator skips null values."""

    record: Record
    code: Code
    message: str
    reply: Reply
    is_silent: bool = False


Outcome = Prediction | Rejection
Refused = tuple[Request, Rejection]


class Place:
    """The place in its partition's line of one received record, or of several `records` that travel as one.

    `offset` is the offset of the last record, and `rows` and `size` count all. The ledger owns the place. `key` is set
    only where records of one key wait for one another. `published_ms` is the timestamp of the last record.
    """

    __slots__ = (
        *("is_in_doubt", "is_settled", "key", "line", "offset", "outcome"),
        *("published_ms", "records", "rows", "size", "taken_at"),
    )

    key: bytes | None

    def __init__(
        self,
        line: Line,
        offset: int,
        rows: int,
        size: int,
        taken_at: float,
        records: int = 1,
        published_ms: int | None = None,
    ) -> None:
        self.line = line
        self.published_ms = published_ms
        self.records = records
        self.offset = offset
        self.rows = rows
        self.size = size
        self.taken_at = taken_at
        self.outcome: Outcome | None = None
        self.is_settled = False  # its answer is durable, and all its other messages
        self.is_in_doubt = False  # unknown whether its answer is durable and its offset committed

    def __repr__(self) -> str:
        return f"<Place {self.line.partition}/{self.offset} settled={self.is_settled}>"


class Line:
    """The places of one partition during one assignment."""

    __slots__ = ("committed", "held", "next_offset", "partition", "sent")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.held: deque[Place] = deque()
        self.sent: deque[Place] = deque()
        self.next_offset = -1  # the next offset that a commit may carry; -1 until something is settled
        self.committed = -1

    @property
    def oldest(self) -> Place | None:
        """The place of the first record that is not settled."""
        return self.sent[0] if self.sent else self.held[0] if self.held else None

    def __repr__(self) -> str:
        return f"<Line {self.partition} sent={len(self.sent)} held={len(self.held)} next_offset={self.next_offset}>"


def nothing_owed(partition: Partition, offset: int) -> Rejection:
    """The outcome for an offset that holds no request."""
    record = Record(partition, offset, None, None, (), None)
    return Rejection(record, Code.INVALID_ARGUMENT, "no request", Reply(""), is_silent=True)


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


class Finished(NamedTuple):
    """One finished inference: `outputs` (one array per model output) or the `failure`, and the seconds it took.

    `batch` None: the model's warm-up batch ran again, to find out whether the device still works.
    """

    batch: Batch | None
    outputs: Sequence[Array] | None
    failure: RunFailure | None
    seconds: float
    model: ModelKey


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
    is_in_doubt: bool = False


class Suspect(NamedTuple):
    """A partition whose records ended the process `attempts` times in a row before any of them was settled.

    Its records before offset `until` run alone. The record at `poison`, if any, ended the process while it ran alone.
    """

    partition: Partition
    attempts: int
    poison: int | None
    until: int
