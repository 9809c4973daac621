"""The inference lanes of a host: a process that has the model, whose death is a failed run of what it held.

    loop ── submit ──▶ [ waiting ] ────job────▶ host: lane 1..n ──▶ outputs in shared memory ── finished ──▶ loop
                       [ that give way ]           ┊
                       [ to run alone ]            ┊
                              ▲                    ┊ it ends: what it had begun has failed, a fresh one starts,
                              └── each record ── loop       and what was not begun waits again

The records of batches that a host had begun when it ended may be innocent. So each runs alone, with no other beside it,
until the one is known that ends a host again (`loop/outcomes.py`). Other batches go on between them, and after a host's
end for as long as it held them up. So other partitions wait for a host's start, and not for one after the other.

Batches that give way have rows that take long, such as very large pictures. The host has one of them at a time, while
it has nothing else to do, or when others have had as long as the last one took.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil

from worker.core.chunk import Batch, Finished
from worker.core.failures import Code, RunFailure
from worker.core.records import Array, HostEnd
from worker.core.tensors.many_inputs import WideFeeds
from worker.core.tensors.room import ALIGNMENT
from worker.inference.host.keeper import Keeper
from worker.inference.host.messages import Places, Ran
from worker.inference.host.process import Ended
from worker.inference.host.shared_memory import Heap, SharedMemory, get, packed, put, room_for

SETTING = " (WORKER_MODEL__RUN_TIMEOUT_S)"  # of the longest run
# Seconds between two looks at how long runs take, and at a host that has nothing to do.
LOOK_AGAIN_AFTER = 0.05
# Seconds for which no batch needs a part of the shared memory, until that is given back.
GIVE_BACK_AFTER = 10.0
# A look that is so late means that this whole process stood still (SIGSTOP, a suspended machine).
STOOD_STILL = 5.0
# Where a batch took too long, each of its records may take so many times the longest run that ever succeeded, and at
# least so many seconds, if the limit is not less. Otherwise a record that hangs takes the limit twice.
TIMES_THE_LONGEST = 10.0
ALONE_AT_LEAST = 5.0
# So many batches are given ahead that there is work for these seconds, at least one and at most so many: when loop and
# host wake each other for each batch of 0.1 ms, they spend more on that than on the batch.
AHEAD = 0.003
MOST_AHEAD = 16
# A lane whose batches take fewer seconds in the mean need not be looked after at once.
BRIEF = 0.0005
# The weight of the newest run in that mean.
NEWEST = 1 / 8


@dataclass(slots=True, eq=False)
class _Run:
    """A batch, or the warm-up batch (None), until it has ended."""

    batch: Batch | None
    is_alone: bool = False
    is_spared: bool = False  # a host that ran it was killed from outside
    has_company: bool = False  # another may run beside it
    is_after_hang: bool = False  # its batch took too long
    room: Array | None = None  # for the outputs; before it lie copies of feeds that are not in the shared memory


class HostLanes:
    """Runs one model in a host of so many lanes. Every method except `running_since` is for the loop's thread."""

    def __init__(
        self,
        keeper: Keeper,
        heap: Heap,
        lanes: int = 1,
        run_timeout: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`run_timeout`: seconds of the longest run. The keeper's host sees the heap's memory."""
        self._keeper = keeper
        self._heap = heap
        self._begun = heap.memory.begun()
        self._run_timeout = run_timeout
        self._clock = clock
        self._lanes = lanes
        self._numbers = list(range(lanes + MOST_AHEAD))
        self._waiting: deque[_Run] = deque()
        self._alone: deque[_Run] = deque()
        self._giving_way: deque[_Run] = deque()
        self._given: dict[int, _Run] = {}  # by the numbers of their jobs, in the order given
        self._turn = 0  # batches that may go before the next one that runs alone
        self._held_up_since: float | None = None  # by the end of a host that has no successor yet
        self._others_until = 0.0  # before any that runs alone
        self._way_until = 0.0  # others go before those that give way
        self._done: list[Finished] = []
        self._out = 0  # batches submitted and not fetched
        self._giving_way_out = 0  # those of them that give way
        self._outputs, self._row_bytes = 0, 0  # of the model, and the most bytes of all of them for a row so far
        self._most_room = len(heap.memory.bytes) // (2 * len(self._numbers))  # all rooms together take half at most
        self._longest = 0.0  # seconds of the longest run that succeeded
        self._hung = False  # the host that ended last took too long
        self._usual = AHEAD  # seconds of a run in the mean
        self._next_look = self._looked_at = self._awake_since = clock()
        self._give_back_at = clock() + GIVE_BACK_AFTER
        self._moved_at = clock()  # when the host last gave a run back, or got one while it had none

    @property
    def in_flight(self) -> int:
        """Batches submitted and not yet fetched by `finished`, without those that let others go first."""
        return self._out - sum(run.batch is not None for run in self._alone) - self._giving_way_out

    @property
    def more_ahead(self) -> int:
        """How many more batches than one for each lane and one ahead should be in flight, because they are brief."""
        return max(0, min(MOST_AHEAD, int(AHEAD / self._usual)) - 1)

    @property
    def is_busy(self) -> bool:
        """True if a batch or the warm-up batch waits or runs, and its end should be looked for soon."""
        return self._usual >= BRIEF and self._is_awaited

    @property
    def running_since(self) -> float | None:
        """When the oldest inference began that is not fetched, by the monotonic clock; None: there is none.

        Any thread may ask.
        """
        return min((began / 1e9 for began in self._begun.tolist() if began), default=None)

    @property
    def _most(self) -> int:
        """The most batches that the host holds."""
        return self._lanes + 1 + self.more_ahead

    @property
    def _is_awaited(self) -> bool:
        return bool(self._given) or self._has_waiting

    @property
    def _has_waiting(self) -> bool:
        return bool(self._waiting or self._alone or self._giving_way)

    def submit(self, batch: Batch) -> None:
        """Queue a batch behind all others."""
        self._out += 1
        self._waiting.append(_Run(batch))
        self._give()

    def resubmit(self, halves: Sequence[Batch]) -> None:
        """Put the parts of a failed batch at the head of the queue, in order.

        Those that run alone, and those that give way, have queues of their own.
        """
        self._out += len(halves)
        self._waiting.extendleft(reversed([_Run(half) for half in halves if not (half.is_alone or half.gives_way)]))
        giving_way = [_Run(half) for half in halves if half.gives_way]
        self._giving_way += giving_way
        self._giving_way_out += len(giving_way)
        self._alone += [_Run(half, is_alone=True, is_after_hang=self._hung) for half in halves if half.is_alone]
        self._give()

    def probe(self) -> None:
        """Run the warm-up batch next; `finished` returns it without a batch."""
        self._waiting.appendleft(_Run(None))
        self._give()

    def finished(self, timeout: float) -> Sequence[Finished]:
        """Fetch what is done. Waits at most `timeout` seconds for the first item, and not at all if nothing is out.

        Raises `ModelBroken` when no host can be started any more.
        """
        self._receive(timeout if self._is_awaited and not self._done else 0.0)
        if (now := self._clock()) >= self._next_look:
            self._look(now)
        done, self._done = self._done, []
        for finished in done:
            self._out -= finished.batch is not None
            self._giving_way_out -= finished.batch is not None and finished.batch.gives_way
        return done

    def close(self, timeout: float) -> None:
        """Drop waiting items and end the host. It is killed if it does not end within `timeout` seconds."""
        self._waiting.clear()
        self._alone.clear()
        self._giving_way.clear()
        self._keeper.close(timeout)

    # To the host

    def _give(self) -> None:
        """Give the host as many batches as it may hold."""
        if self._held_up_since is not None and self._keeper.is_ready:
            now = self._clock()
            self._others_until, self._held_up_since = 2 * now - self._held_up_since, None
        while self._has_waiting and self._keeper.is_ready and (run := self._next()) is not None:
            self._send(run)

    def _next(self) -> _Run | None:
        """The run that may go to the host now. Between two that run alone go others, as many as a host holds."""
        if any(run.is_alone for run in self._given.values()):
            return None
        if self._alone and not (self._waiting and (self._turn or self._clock() < self._others_until)):
            if self._given:
                return None
            self._turn = self._most
            return self._alone.popleft()
        if len(self._given) >= self._most:
            return None
        if self._giving_way and not any(map(_gives_way, self._given.values())):
            is_idle = not self._waiting and len(self._given) < self._lanes
            if is_idle or self._clock() >= self._way_until:
                return self._giving_way.popleft()
        if not self._waiting:
            return None
        self._turn -= self._turn > 0
        return self._waiting.popleft()

    def _send(self, run: _Run) -> None:
        number = self._numbers.pop()
        places, elsewhere, rows = None, dict[str | tuple[str, ...], Array](), 1
        if run.batch is not None:
            (places, elsewhere), rows = self._placed(run.batch), run.batch.rows
        copies = [packed(array) for array in elsewhere.values()]
        of_copies, room = room_for(copies), min(self._outputs * ALIGNMENT + rows * self._row_bytes, self._most_room)
        piece = self._heap.take(of_copies + room)
        start = self._heap.memory.start_of(piece)
        assert start is not None
        if places is not None:
            places.update(zip(elsewhere, put(copies, self._heap.memory.bytes, start), strict=True))
        run.room = piece[of_copies:]
        self._begun[number] = 0
        if not self._given:
            self._moved_at = self._clock()
        if self._lanes > 1 and self._given:
            for beside in (run, *self._given.values()):
                beside.has_company = True
        self._given[number] = run
        self._keeper.give((number, places, start + of_copies, len(run.room)))

    def _placed(self, batch: Batch) -> tuple[Places, dict[str | tuple[str, ...], Array]]:
        """The places of the feeds, and those that do not lie in the memory: texts, states, a single record."""
        places = Places()
        elsewhere = dict[str | tuple[str, ...], Array]()
        feeds = batch.all_feeds
        arrays = feeds.wholes if isinstance(feeds, WideFeeds) else feeds
        for name, array in arrays.items():
            start = None if array.dtype.hasobject else self._heap.memory.start_of(array)
            if start is None:
                elsewhere[name] = array
            else:
                places[name] = (array.dtype.str, array.shape, start, array.nbytes)
        return places, elsewhere

    # From the host

    def _receive(self, timeout: float) -> None:
        for ran, elsewhere in self._keeper.receive(timeout):
            self._ran(ran, elsewhere)
        if (ended := self._keeper.ended(len(self._given))) is not None:
            self._failed(ended)
        self._give()

    def _ran(self, ran: Ran, elsewhere: SharedMemory | None) -> None:
        number, seconds, places, failure = ran
        run = self._given.pop(number)
        self._begun[number] = 0
        self._numbers.append(number)
        self._moved_at = self._clock()
        if _gives_way(run):
            self._way_until = self._moved_at + seconds
        if places is None:
            assert failure is not None
            if failure.code is Code.RESOURCE_EXHAUSTED and run.has_company:  # alone it may have enough memory
                self._alone.append(_Run(run.batch, is_alone=True))
            else:
                self._finish(run, seconds, failure=failure)
            return
        self._longest = max(self._longest, seconds)
        self._usual += NEWEST * (seconds - self._usual)
        if elsewhere is not None:
            rows = 1 if run.batch is None else run.batch.rows
            self._outputs = len(places)
            self._row_bytes = max(self._row_bytes, ceil(sum(size for _, _, _, size in places) / rows))
        content = run.room if elsewhere is None else elsewhere.bytes
        assert content is not None
        outputs = [get(place, content) for place in places]
        if failure is None:
            self._finish(run, seconds, outputs)
        else:
            self._finish(run, seconds, failure=replace(failure, outputs=outputs))

    def _finish(
        self, run: _Run, seconds: float, outputs: Sequence[Array] | None = None, failure: RunFailure | None = None
    ) -> None:
        self._done.append(Finished(run.batch, outputs, failure, seconds))

    # Hosts that end

    def _look(self, now: float) -> None:
        """End a host whose run takes too long, and look after one that is silent."""
        if now - self._looked_at > STOOD_STILL:
            self._awake_since = now
        self._looked_at, self._next_look = now, now + LOOK_AGAIN_AFTER
        if (why := self._overdue(now)) is not None:
            self._keeper.kill(HostEnd.HANG, why)
        self._keeper.look()
        if now >= self._give_back_at:
            self._give_back_at = now + GIVE_BACK_AFTER
            locked = self._keeper.facts.page_locked
            self._heap.give_back(0 if locked is None else locked.size)

    def _overdue(self, now: float) -> str | None:
        """Why the host counts as hung, in words that follow "the model's process"; None if it does not."""
        begun = {number: self._begun[number] / 1e9 for number in self._given}
        for number, began in begun.items():
            limit = self._limit(self._given[number])
            if began and now - max(began, self._awake_since) > limit:
                which = SETTING if limit == self._run_timeout else ", and no run that succeeded took so long"
                return f"ran for more than {limit:.0f} s{which}"
        silent = now - max(self._moved_at, self._awake_since)
        if begun and not any(begun.values()) and silent > self._run_timeout:
            return f"began no run for more than {self._run_timeout:.0f} s{SETTING}"
        return None

    def _limit(self, run: _Run) -> float:
        if not (run.is_after_hang and self._longest):
            return self._run_timeout
        return min(self._run_timeout, max(ALONE_AT_LEAST, TIMES_THE_LONGEST * self._longest))

    def _failed(self, ended: Ended) -> None:
        """Let what the host had begun fail, and what it had not begun wait again."""
        given, self._given = self._given, {}
        self._numbers += given
        self._hung = ended.cause is HostEnd.HANG
        self._held_up_since = self._clock()
        again: list[_Run] = []
        failure = RunFailure(f"its process {ended.why}", ended_host=True)
        for number, run in given.items():
            began, self._begun[number] = self._begun[number] / 1e9, 0
            # A fresh host has run the warm-up batch; and who kills from outside does not mean a single record.
            may_be_innocent = run.batch is None or (run.is_alone and ended.cause is HostEnd.KILLED)
            if began and not (may_be_innocent and not run.is_spared):
                self._finish(run, self._clock() - began, failure=failure)
            else:
                run.is_spared = run.is_spared or bool(began)
                again.append(run)
        self._waiting.extendleft(reversed([run for run in again if not run.is_alone]))
        self._alone.extendleft(reversed([run for run in again if run.is_alone]))


def _gives_way(run: _Run) -> bool:
    return run.batch is not None and run.batch.gives_way
