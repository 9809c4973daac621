"""Turns groups that are due into batches in the lanes, and fetches the finished ones.

    batcher.due ─▶ still in time? ─▶ stacker.stack ─▶ lanes.submit ┈(thread)┈▶ lanes.finished
                         └──────── refusals ───────▶ Outcomes

Owns the batches in the lanes. Never answers: `Outcomes` answers records that may not run, and finished runs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from worker.core.batching.batcher import Group
from worker.core.chunk import Batch, Chunk, Finished
from worker.core.records import Partition
from worker.loop.conduct import Parts
from worker.loop.outcomes import Outcomes

# While Kafka has more to give, a due group waits for one more poll, unless it was due this many seconds before the last
# poll. Otherwise the rest of a poll, after its full batches, goes at once in a small batch of its own.
COMPANY_COMES_WITHIN = 0.0005


class Dispatch:
    """Fills the lanes. Owns the batches in them."""

    def __init__(self, parts: Parts, outcomes: Outcomes) -> None:
        self._batcher = parts.batcher
        self._stackers = parts.stackers
        self._lanes = parts.lanes
        self._intake = parts.intake
        self._punctuality = parts.punctuality
        self._outcomes = outcomes
        self._events = parts.events
        self._conduct = parts.conduct
        self._clock = parts.clock
        self._out: dict[int, Batch] = {}  # batches in the lanes, by identity
        self._is_draining = False
        self.last_full_poll_at: float | None = None  # the last poll's time, if it brought as many as asked for

    @property
    def in_flight(self) -> int:
        """The number of batches in the lanes."""
        return self._lanes.in_flight

    @property
    def is_busy(self) -> bool:
        """True if a lane may finish while the loop does something else; what is finished already does not count."""
        return self._lanes.is_busy

    @property
    def is_running(self) -> bool:
        """True if a lane has something to do, the warm-up batch included."""
        return bool(self._out) or self._outcomes.check.is_probing

    @property
    def has_backlog(self) -> bool:
        """True if enough full groups wait for the lanes, so that further records may stay with Kafka."""
        return self._batcher.backlog >= self._conduct.inflight_batches

    @property
    def is_idle(self) -> bool:
        """True if nothing runs, and no full group waits for a lane."""
        return not (self._lanes.in_flight or self._batcher.backlog)

    @property
    def next_due(self) -> float | None:
        """When the first group has waited long enough for company; None while nothing waits."""
        return self._batcher.next_due

    def holds(self, partitions: Collection[Partition]) -> bool:
        """True if a batch in the lanes has rows of these partitions."""
        return any(chunk.partition in partitions for batch in self._out.values() for chunk in batch.chunks)

    def drain(self) -> None:
        """Let nothing wait for company from now on."""
        self._is_draining = True

    def hand_out(self, now: float) -> None:
        """Fill the lanes with the groups that are due."""
        while self._lanes.in_flight < self._conduct.inflight_batches + self._lanes.more_ahead:
            group = self._next_group(now)
            if group is None:
                return
            self._start(group, now)

    def _start(self, group: Group, now: float) -> None:
        """Stack the group and give it to a lane; records that may not run are refused."""
        chunks: Sequence[Chunk] = group.chunks
        if self._punctuality.is_asked_for:
            chunks, late = self._punctuality.triaged(chunks, group.kind, now)
            self._outcomes.refuse_records(late)
        batch, refused = self._stackers[group.kind.model].stack(chunks, group.closed_by)
        self._outcomes.refuse_records(refused)
        if batch is not None:
            self._out[id(batch)] = batch
            self._lanes.submit(batch)
            self._punctuality.handed_out(batch, now)
            self._events.batch_closed(batch, now - group.opened_at)

    def resubmit(self, halves: Sequence[Batch], now: float) -> None:
        """Run the halves of a failed batch next, in its slot."""
        self._out.update((id(half), half) for half in halves)
        self._lanes.resubmit(halves)
        for half in halves:
            self._punctuality.handed_out(half, now)

    def probe_if_wanted(self) -> None:
        """Run the warm-up batch again when the device check asks for it."""
        if self._outcomes.check.wants_probe(is_running=bool(self._out)):
            self._lanes.probe()

    def finished(self, timeout: float) -> Sequence[Finished]:
        """The finished runs, which are not answered yet. Waits at most `timeout` seconds for the first."""
        if finished := self._lanes.finished(timeout):
            self._punctuality.returned(finished, self._clock())
        for run in finished:
            if run.batch is not None:
                del self._out[id(run.batch)]
        return finished

    def _next_group(self, now: float) -> Group | None:
        if self._is_draining:
            return self._batcher.drain()
        if self._lanes.in_flight >= self._conduct.lanes:
            return self._batcher.ahead(now)
        if self.last_full_poll_at is not None and not self._intake.is_full:
            return self._batcher.due(self.last_full_poll_at - COMPANY_COMES_WITHIN)
        return self._batcher.due(now) or (self._batcher.pressed() if self._intake.is_full else None)
