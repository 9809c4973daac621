"""The protocols between the packages. Classes satisfy them by shape; mypy proves that in `assembly.py`.

Nothing here is implemented or owned. The loop's thread makes every call, except `Source.leave`. A signal handler sets
the flags of `Signals`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from worker.core.chunk import Batch, Chunk, Finished, Prediction, Reading
from worker.core.ordering.ledger import Stretch
from worker.core.records import (
    Answer,
    BatchKind,
    CommitResult,
    Ending,
    Fields,
    HostEnd,
    Partition,
    Record,
    Rejection,
)
from worker.core.schemas import RegisteredSchema, SchemaName, UnknownSchema


class Source(Protocol):
    """A source of records: a consumer, or a file."""

    def subscribe(self, assignments: Assignments) -> None: ...

    def poll(self, max_records: int, timeout: float) -> Sequence[Record]:
        """At most `max_records`: at once if any wait, else the first that comes within `timeout` seconds.

        Serves rebalance and commit callbacks. If a callback took a partition away, its records are not returned, even
        if this call fetched them before: their next owner answers them. Raises `KafkaFatal`, also for a commit refused
        for good, and any exception of a callback.
        """

    def pause(self) -> None:
        """Stop fetching from every partition held, and from partitions assigned later."""

    def resume(self) -> None: ...

    def hold(self, partition: Partition, offset: int) -> None:
        """Give no more records of this partition until `release`; then read it again from this offset.

        A `rewind` ends the hold, and so does the partition's leaving.
        """

    def release(self, partition: Partition) -> None:
        """End a hold."""

    def close(self) -> None:
        """Leave the group, if there is one. Calls `revoked` for the partitions still held."""

    def leave(self) -> None:
        """Leave the group from another thread, because the loop's thread hangs. Makes no callbacks."""


class Offsets(Protocol):
    """The group's offsets: how far it has come in each partition."""

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Begin an asynchronous commit of next offsets; `commit_results` has its result after a later poll."""

    def commit_results(self) -> Sequence[CommitResult]:
        """The results of commits since the last call, in order."""

    def positions(self) -> Mapping[Partition, int]:
        """The next offset of each partition that has brought something, and has nothing waiting.

        Only what came since its assignment or rewind counts. Markers of transactions and aborted records, which the
        client skips, count too.
        """

    def rewind(self, partitions: Sequence[Partition]) -> None:
        """Read these partitions again from their committed offsets. Until these are known, no record of them comes."""


class GroupSource(Source, Offsets, Protocol):
    """A consumer in its group, as the loop needs it."""


class Assignments(Protocol):
    """The callbacks that a source makes inside `poll` and `close` when partitions come and go. The worker has them.

    `revoked` finishes running batches, so it may raise a `Stop`.
    """

    def assigned(self, partitions: Sequence[Partition]) -> None: ...
    def revoked(self, partitions: Sequence[Partition]) -> None: ...
    def lost(self, partitions: Sequence[Partition]) -> None: ...

    def is_in_doubt(self, partition: Partition) -> bool:
        """True if no record of the partition may come yet, and its offset in the group may still change.

        An offset of an earlier assignment may still be committed, or the states of its keys are not here.
        """


class Codec(Protocol):
    """The wire contract: reads records, and writes answers. Raises nothing for bad input."""

    def read(self, records: Sequence[Record]) -> Reading:
        """Decode and judge records, at least one, in order, up to one whose schema is not here.

        A chunk of records of several partitions must be parted before it goes on (`core/reading_together.py`).
        """

    def write(self, prediction: Prediction) -> Sequence[Answer]:
        """The answers to a chunk that the model answered, by index. One that cannot be written is a rejection."""

    def messages(self, answers: Sequence[Answer]) -> Sequence[Fields]:
        """The messages of answers that leave, in order. A rejection gives an error and a dead letter, or none."""


class Schemas(Protocol):
    """The schemas of a registry, by the names that records have for them. Never waits for the registry."""

    def get(self, name: SchemaName) -> RegisteredSchema | UnknownSchema | None:
        """The schema, or the registry's verdict that there is none; None: it is being asked, so ask again later."""

    @property
    def trouble(self) -> str | None:
        """Why the registry does not answer; None: it does, as far as is known."""

    @property
    def away_since(self) -> float | None:
        """The instant since when it does not answer."""


class Stage(Protocol):
    """A stage that takes chunks: the batcher, or one before it that holds some records back (`state/by_key.py`)."""

    @property
    def backlog(self) -> int:
        """The number of full groups that wait for a lane."""

    def by_batch(self, chunk: Chunk) -> Iterable[tuple[BatchKind, Chunk]]:
        """The chunk's records in parts that each fit into one batch. Add each part before asking for the next."""

    def add(self, chunk: Chunk, now: float) -> None: ...

    def concluded(self, chunks: Iterable[Chunk], now: float) -> None:
        """Hear of records that have their outcomes: others may wait for them."""

    def forget(self, partitions: Collection[Partition]) -> None: ...


class NextStage(Stage, Protocol):
    """A stage behind one that holds some records back."""

    def add_late(self, chunk: Chunk, now: float) -> None:
        """Take records that have waited already, so that their batches are due at once."""


class States(Protocol):
    """The states of the keys of a model with state (`state/states.py`), or none."""

    @property
    def wait(self) -> float | None:
        """The most seconds that the loop may wait while states are coming; None if it may wait as long as it likes."""

    @property
    def kept(self) -> Checkpointed | None:
        """The part that leaves the states to the next process; None if that cannot go on from them."""

    def assigned(self, partitions: Sequence[Partition]) -> None: ...
    def is_restoring(self, partition: Partition) -> bool: ...
    def restore_some(self) -> bool: ...
    def conclude(self, predictions: Sequence[Prediction]) -> None: ...
    def rewind(self, partitions: Collection[Partition]) -> None: ...
    def take_back(self, records: Iterable[Record]) -> None:
        """Undo writes of partitions that are read again, from the first of these records on."""

    def forget(self, partitions: Collection[Partition]) -> None: ...


class Checkpointed(Protocol):
    """The states that a checkpoint is made of (`state/keeping.py`)."""

    def ask_ends(self, timeout: float) -> Mapping[Partition, Any]:
        """How far the states reach that can be kept. Asks the changelog for `timeout` seconds at most."""

    def end(self, extents: Mapping[Partition, Any]) -> None: ...
    def keep(self, go_on: Callable[[], bool]) -> int | None:
        """Leave the states to the next process. Returns how many; None if `go_on` returned False before the end."""


class Lanes(Protocol):
    """The inference threads of one model. Batches start in the order submitted and finish in any order."""

    @property
    def in_flight(self) -> int:
        """The number of batches submitted and not yet fetched by `finished`.

        Probes do not count, nor batches that let others go first.
        """

    @property
    def more_ahead(self) -> int:
        """How many more batches than usual should be in flight, because they are brief."""

    @property
    def is_busy(self) -> bool:
        """True if a batch or a probe waits or runs whose end should be looked for soon."""

    def submit(self, batch: Batch) -> None:
        """Queue a batch. One that should take little time may run at once, and is then finished."""

    def resubmit(self, halves: Sequence[Batch]) -> None:
        """Put the halves of a failed batch at the head of the queue, in order; those that give way behind others."""

    def probe(self) -> None:
        """Run the warm-up batch next; `finished` returns it as a `Finished` without a batch."""

    def finished(self, timeout: float) -> Sequence[Finished]:
        """The finished runs. Waits at most `timeout` seconds for the first, or not at all if none is running."""


class Delivery(Protocol):
    """Makes outcomes durable. There is one class per guarantee."""

    @property
    def next_due(self) -> float | None:
        """When `make_progress` has something to do, reports included."""

    @property
    def is_idle(self) -> bool:
        """True if nothing is unsettled or uncommitted."""

    def send(self, stretches: Sequence[Stretch]) -> None:
        """Send answers that may leave (`OffsetLedger.take_answers`), in order."""

    def make_progress(self, now: float, timeout: float) -> Sequence[Partition]:
        """Settle and commit answers that are due. Returns partitions to read again, because answers were taken back."""

    def push(self) -> None:
        """Let no message wait for company, because no more outcomes are coming for now."""

    def commit_promptly(self) -> None:
        """Commit as soon as there is something to commit, from now on."""

    def revoke(self, partitions: Sequence[Partition], deadline: float) -> int:
        """Settle and commit as much as possible by then; forget the rest. Returns how many records leave unsettled."""

    def lost(self, partitions: Sequence[Partition]) -> int: ...

    def is_in_doubt(self, partition: Partition) -> bool:
        """True if a transaction may be committing an offset for this partition, which another commit would undo."""


class Sink(Protocol):
    """The producer of a worker that answers at least once."""

    def send(self, messages: Sequence[Fields], stretch: Stretch) -> None: ...

    def poll(self, timeout: float) -> Sequence[Stretch]:
        """The stretches whose messages have all become durable, as they were sent, once each.

        One without messages comes with the next call. Waits at most `timeout` seconds for one.
        """

    def push(self) -> None: ...


class Transactions(Protocol):
    """One transactional producer. `begin`, `send`, `commit` and `abort` do not wait; `ended` reports their failures."""

    def begin(self) -> None: ...
    def send(self, messages: Sequence[Fields], stretch: Stretch) -> None: ...

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Begin to end the transaction, with these next offsets in it."""

    def abort(self) -> None:
        """Begin to take the transaction back."""

    def ended(self, timeout: float) -> Ending | None:
        """The transaction's end, after at most `timeout` seconds; None while it has none. Raises `KafkaFatal`."""

    def serve(self, timeout: float) -> None:
        """Serve the client's callbacks, waiting at most `timeout` seconds for the first."""


class Events(Protocol):
    """The loop's and the delivery's reports to logs and metrics: a few calls per batch, and one per rejection."""

    def assigned(self, partitions: Sequence[Partition]) -> None: ...
    def revoked(self, partitions: Sequence[Partition], seconds: float, unsettled: int) -> None: ...
    def lost(self, partitions: Sequence[Partition], unsettled: int) -> None: ...
    def rewound(self, partitions: Sequence[Partition]) -> None: ...
    def taken(self, records: int) -> None: ...
    def unanswered(self, records: int) -> None:
        """So many of the records taken get no answer: they are of other kinds, or null values."""

    def batch_closed(self, batch: Batch, waited: float) -> None:
        """A batch went to the lanes, `waited` seconds after its first record was taken."""

    def batch_ran(self, rows: int, seconds: float, failure: str | None) -> None: ...
    def rejected(self, rejection: Rejection) -> None: ...

    def answered_late(self, records: int) -> None:
        """`records` requests were run, but answered after their deadlines."""

    def paused(self, *, is_paused: bool) -> None: ...
    def waits_for_schema(self, partition: Partition, schema: str, why: str | None) -> None:
        """The partition has stood for a while, because this schema is not here; `why`: the registry's trouble."""

    def goes_on(self, partition: Partition, seconds: float) -> None:
        """A partition that stood so long for a schema goes on."""

    def device_probed(self, failure: str | None) -> None: ...
    def rows_lost(self, failure: str) -> None:
        """A model gave another number of rows than went in, for the first time."""

    def settled(self, taken_at: Mapping[float, int], now: float) -> None: ...
    def committed(self, result: CommitResult) -> None: ...
    def transaction_ended(self, ending: Ending, records: int) -> None: ...
    def restored(self, partition: Partition, keys: int, seconds: float) -> None: ...
    def thrown_away(self, partition: Partition, why: str) -> None: ...
    def kept(self, states: int, seconds: float) -> None: ...
    def not_kept(self, why: str) -> None: ...
    def foreign_states(self, partition: Partition, count: int) -> None: ...
    def applied_before(self, record: Record, count: int) -> None: ...

    def store_troubled(self, why: str | None) -> None:
        """The store outside does not answer any more, and why; None: it answers again."""

    def turned(self, now: float, in_flight: int) -> None:
        """One turn ended: the heartbeat. `in_flight` counts records taken and not settled."""


class HostEvents(Protocol):
    """The reports about the process that has the model, made on the loop's thread."""

    def host_started(self, pid: int, seconds: float, why: str) -> None:
        """This process runs batches from now on. Its start took `seconds`; `why` says what became of the last."""

    def host_ended(self, end: HostEnd, why: str, batches: int) -> None:
        """That process has ended, or one that was to follow it. `batches`: how many it had, running or next."""


class Signals(Protocol):
    """The operator's wish to stop, read once a turn."""

    @property
    def stop_asked(self) -> bool: ...

    @property
    def hurry_asked(self) -> bool:
        """True if asked to stop a second time: give up at once."""
