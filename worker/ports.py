"""The protocols between the rooms, each once: satisfied by shape, and proven by mypy in `assembly.py`.

Nothing here is implemented or owned. Every call is made by the loop's thread, except `Source.leave`; the flags of
`Signals` are set by a signal handler.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from worker.core.failures import Code
from worker.core.records import (
    Batch,
    BatchKind,
    CommitResult,
    Ending,
    Finished,
    Message,
    ModelKey,
    Outcome,
    Partition,
    Place,
    Record,
    Rejection,
    Request,
    Suspect,
)
from worker.core.runs import Run


class Source(Protocol):
    """Where records come from: a consumer, a file."""

    def subscribe(self, assignments: Assignments) -> None: ...

    def poll(self, max_records: int, timeout: float) -> Sequence[Record]:
        """At most `max_records`: at once if any wait, else the first that comes within `timeout` seconds.

        Serves rebalance and commit callbacks. What a callback took away is not among the records, even if it was
        fetched before, in the same call: its next owner answers it. Raises `KafkaFatal`, also for a commit refused for
        good, and whatever a callback raised.
        """

    def pause(self) -> None:
        """Stop fetching on every partition held, and on those assigned from now on."""

    def resume(self) -> None: ...

    def close(self) -> None:
        """Leave the group, if there is one. Calls `revoked` for what is still held."""

    def leave(self) -> None:
        """The same from another thread, before the process ends with the loop's own hung. Calls nothing back."""


class Offsets(Protocol):
    """How far the group is with each partition."""

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Begin an asynchronous commit of next offsets; its result comes from `commit_results` after a later poll."""

    def commit_results(self) -> Sequence[CommitResult]:
        """The results since the last call, in order."""

    def positions(self) -> Mapping[Partition, int]:
        """The next offset of each partition of which something came since its assignment or rewind, and nothing waits.

        The client goes past what is no record (markers of transactions) and what may not be read (what was aborted):
        that counts as having come.
        """

    def rewind(self, partitions: Sequence[Partition]) -> None:
        """Read these again from what the group has committed. Until that is known, nothing of them comes."""


class IsolationNotes(Protocol):
    """What an isolated run needs of the group: a note that outlives the process, and a partition that waits."""

    def note_isolated_run(self, partition: Partition, offset: int) -> bool:
        """Note with the group that this record is about to run alone. To be called again until it is so: True."""

    def withdraw_note(self, partition: Partition, offset: int) -> bool:
        """Take back what `note_isolated_run` noted: the record is left to its next owner, and ended no process.

        To be called again until it is so, by who can wait: True.
        """

    def clear_note(self, partition: Partition, next_offset: int, patience: float) -> None:
        """See to it, for so many seconds at most, that the group keeps no note of the run that is left.

        For a rebalance and an end, where no poll brings results. The group is to stand at `next_offset`: of the record
        itself, which is its next owner's, or behind it, where it is settled.
        """

    def withhold(self, partition: Partition) -> None:
        """Stop fetching this one, until `release`, `rewind` or its next assignment."""

    def release(self, partition: Partition) -> None:
        """Fetch it again."""


class GroupSource(Source, Offsets, IsolationNotes, Protocol):
    """A consumer in its group: all that the loop asks of it."""


class Assignments(Protocol):
    """What a source calls, inside `poll` and `close`, when partitions come and go. The worker is one.

    `suspected` comes before any record of those partitions. `revoked` finishes running batches, so it may raise a
    `Stop`.
    """

    def assigned(self, partitions: Sequence[Partition]) -> None: ...
    def revoked(self, partitions: Sequence[Partition]) -> None: ...
    def lost(self, partitions: Sequence[Partition]) -> None: ...
    def suspected(self, suspects: Sequence[Suspect]) -> None: ...

    def is_in_doubt(self, partition: Partition) -> bool:
        """Whether something of an earlier assignment may still be committed: until then nothing new may be."""


class Codec(Protocol):
    """Headers and bytes to tensors. Pure; raises nothing for bad input."""

    def decode(self, record: Record) -> Request | Rejection: ...

    def decode_all(self, records: Sequence[Record]) -> Sequence[Request | Rejection]:
        """What `decode` says of each, in order; of some that lie side by side, one `Run` that stands for them."""

    def refuse(self, record: Record, code: Code, message: str) -> Rejection:
        """The rejection of a record whose value is not even looked at."""


class NextStage(Protocol):
    """A stage that takes decoded requests, behind another one that may hold some back (`state/by_key.py`)."""

    @property
    def backlog(self) -> int:
        """Full groups that wait for a lane."""

    def kind(self, request: Request) -> BatchKind:
        """The kind of the batch that the request will share."""

    def add(self, request: Request, now: float) -> None: ...
    def add_late(self, request: Request, now: float) -> None:
        """Find company for a request that has waited already."""

    def room(self, run: Run) -> int: ...
    def forget(self, partitions: Collection[Partition]) -> None: ...


class Lanes(Protocol):
    """The inference threads. Batches start in the order submitted and finish in any order."""

    @property
    def in_flight(self) -> int:
        """Batches submitted and not yet fetched by `finished`; probes are not counted."""

    def submit(self, batch: Batch) -> None:
        """Queue a batch; one that will be brief may be run at once, and is finished then."""

    def resubmit(self, halves: Sequence[Batch]) -> None:
        """Put the halves of a failed batch at the head of the queue, in order."""

    def probe(self, model: ModelKey) -> None:
        """Run this model's warm-up batch next; it is returned as a `Finished` without a batch."""

    def finished(self, timeout: float) -> Sequence[Finished]:
        """What is finished, waiting at most `timeout` seconds for the first; at once when nothing is out."""


class Delivery(Protocol):
    """How outcomes become durable: one class per guarantee."""

    @property
    def next_due(self) -> float | None:
        """When `turn` has something to do, reports included."""

    @property
    def is_idle(self) -> bool:
        """Nothing is unsettled or uncommitted."""

    def send(self, places: Sequence[Place]) -> None: ...

    def turn(self, now: float, timeout: float) -> Sequence[Partition]:
        """Settle and commit what is due. Returns partitions whose answers were taken back: to be read again."""

    def push(self) -> None:
        """No more outcomes are coming for now: none that was sent should wait for company."""

    def commit_promptly(self, *, is_urgent: bool) -> None:
        """While it is urgent, commit as soon as there is something to commit."""

    def revoke(self, partitions: Sequence[Partition], deadline: float) -> int:
        """Settle and commit what can be by then, forget the rest. Returns how many records leave unsettled."""

    def lost(self, partitions: Sequence[Partition]) -> int: ...

    def is_in_doubt(self, partition: Partition) -> bool:
        """Whether a commit for it is under way that another one outside of it would undo."""


class Encoder(Protocol):
    """Outcomes to the messages that answer them."""

    def encode(self, outcome: Outcome) -> Sequence[Message]: ...


class Sink(Protocol):
    """The producer of a worker that answers at least once."""

    def send(self, messages: Sequence[Message], place: Place) -> None: ...

    def poll(self, timeout: float) -> Sequence[Place]:
        """The places whose messages have all become durable, once each, waiting at most `timeout` seconds for one."""

    def push(self) -> None: ...


class Transactions(Protocol):
    """One transactional producer. None of these waits; `ended` says what went wrong in `begin` and `send`."""

    def begin(self) -> None: ...
    def send(self, messages: Sequence[Message], place: Place) -> None: ...

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Begin to end the transaction, with these next offsets in it."""

    def abort(self) -> None:
        """Begin to take it back."""

    def ended(self, timeout: float) -> Ending | None:
        """How the transaction ended, waiting at most `timeout` seconds; None while it has not. Raises `KafkaFatal`."""

    def serve(self, timeout: float) -> None:
        """Serve the client's callbacks, waiting at most `timeout` seconds for the first."""


class GroupCommits(Protocol):
    """The group's commits outside of transactions."""

    def is_marking(self, partitions: Collection[Partition]) -> bool:
        """Whether a commit outside of transactions is under way for one of these: a late one would undo theirs."""

    def withdraw_notes(self, offsets: Mapping[Partition, int]) -> bool:
        """Withdraw the notes of records that ran alone, and whose answers these next offsets cover.

        To be called until it is so: True.
        """


class Events(Protocol):
    """The loop's and the delivery's reports to logs and metrics: a few calls per batch, and one per rejection."""

    def assigned(self, partitions: Sequence[Partition]) -> None: ...
    def revoked(self, partitions: Sequence[Partition], seconds: float, unsettled: int) -> None: ...
    def lost(self, partitions: Sequence[Partition], unsettled: int) -> None: ...
    def rewound(self, partitions: Sequence[Partition]) -> None: ...
    def suspected(self, suspects: Sequence[Suspect]) -> None: ...
    def taken(self, records: int) -> None: ...

    def batch_closed(self, batch: Batch, waited: float) -> None:
        """A batch went to the lanes `waited` seconds after its first record was taken."""

    def batch_ran(self, rows: int, seconds: float, failure: str | None) -> None: ...
    def rejected(self, rejection: Rejection) -> None: ...

    def answered_late(self, records: int) -> None:
        """So many requests were run, and answered after their deadlines all the same."""

    def paused(self, *, is_paused: bool) -> None: ...
    def device_probed(self, failure: str | None) -> None: ...
    def rows_lost(self, failure: str) -> None:
        """A model gave other rows than went in, for the first time."""

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
        """The store outside stops to answer, and why; None: it answers again."""

    def turned(self, now: float, in_flight: int) -> None:
        """One turn ended: the heartbeat. `in_flight` counts records taken and not settled."""


class Signals(Protocol):
    """What the operator asked for, read once a turn."""

    @property
    def stop_asked(self) -> bool: ...

    @property
    def hurry_asked(self) -> bool:
        """Asked to stop a second time: give up at once."""
