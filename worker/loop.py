"""(skeleton: the Protocols that the rooms satisfy; the loop itself follows)"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from worker.core.failures import Code
from worker.core.records import Batch, ClosedBy, CommitResult, Finished, Message, Outcome, Partition, Record, Rejection, Request
from worker.core.ledger import Place


class Assignments(Protocol):
    """What a source calls, inside `poll` and `close`, when partitions come and go. The loop is one."""

    def assigned(self, partitions: Sequence[Partition]) -> None: ...
    def revoked(self, partitions: Sequence[Partition]) -> None: ...
    def lost(self, partitions: Sequence[Partition]) -> None: ...


class Source(Protocol):
    """The consumer. Every call is made by the loop's thread."""

    def subscribe(self, assignments: Assignments) -> None: ...

    def poll(self, max_records: int, timeout: float) -> Sequence[Record]:
        """At most `max_records`, at once if any wait, else the first that comes within `timeout` seconds.

        Serves rebalance and commit callbacks. Raises `KafkaFatal` (also for a commit refused for good: fenced, not authorised).
        """

    def pause(self) -> None:
        """Stop fetching on every assigned partition, and on those assigned from now on."""

    def resume(self) -> None: ...

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Begin an asynchronous commit of next offsets. Its result comes from `commit_results` after a later poll."""

    def commit_results(self) -> Sequence[CommitResult]:
        """The results since the last call, in order."""

    def close(self) -> None:
        """Leave the group. Calls `revoked` for what is still assigned."""


class Sink(Protocol):
    """The producer. Every call is made by the loop's thread; none blocks longer than its timeout."""

    def send(self, message: Message, place: Place) -> None:
        """Hand over one message. `place` comes back from `poll` once the broker has acknowledged it. Never blocks: what
        the client's queue has no room for waits here, in order."""

    def poll(self, timeout: float) -> Sequence[Place]:
        """Serve delivery reports: the place of each message delivered since the last call, as often as it had messages.

        Raises `KafkaFatal` when a message was refused: nothing after it may be committed.
        """


class Lanes(Protocol):
    """The inference threads. Batches start in the order submitted; they come home in any order."""

    @property
    def in_flight(self) -> int:
        """Batches submitted and not yet fetched by `finished` (probes not counted)."""

    def submit(self, batch: Batch) -> None: ...

    def resubmit(self, halves: Sequence[Batch]) -> None:
        """Put the halves of a failed batch at the head of the queue, in order."""

    def probe(self) -> None:
        """Run the warm-up batch next; it comes home as a `Finished` without a batch."""

    def finished(self, timeout: float) -> Sequence[Finished]:
        """What has come home, waiting at most `timeout` seconds for the first. Empty at once when nothing is in flight."""


class Codec(Protocol):
    """Headers and bytes to tensors and back. Pure; raises nothing for bad input."""

    def decode(self, record: Record) -> Request | Rejection: ...

    def encode(self, outcome: Outcome) -> Sequence[Message]:
        """The answer, and for a rejection also the dead letter if there is a topic for it; each within its topic's size limit."""


class Events(Protocol):
    """What the loop tells whoever watches; called at most a few times per batch, except `rejected` (once per rejection)."""

    def assigned(self, partitions: Sequence[Partition]) -> None: ...
    def revoked(self, partitions: Sequence[Partition], seconds: float, unsettled: int) -> None: ...
    def lost(self, partitions: Sequence[Partition]) -> None: ...

    def taken(self, records: int) -> None:
        """So many records were taken in this turn."""

    def batch_closed(self, batch: Batch, waited: float) -> None:
        """A batch was handed to a lane `waited` seconds after its first record was taken."""

    def batch_ran(self, rows: int, seconds: float, failure: str | None) -> None:
        """An inference came home. Called for the halves of a failed batch too."""

    def rejected(self, rejection: Rejection) -> None: ...

    def settled(self, taken_at: Sequence[float], now: float) -> None:
        """The records taken at those instants have their answers acknowledged by the broker."""

    def committed(self, result: CommitResult) -> None: ...

    def paused(self, is_paused: bool) -> None: ...

    def turned(self, now: float, in_flight: int) -> None:
        """One turn of the loop ended: the heartbeat. `in_flight` counts records taken and not settled."""
