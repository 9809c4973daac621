"""The inference lane on a thread of this process: batches go in by one queue, outputs or failures come back by another.

    loop ── submit ──▶ [ waiting: halves and probes at the head ] ──▶ lane ──▶ [ done ] ── finished ──▶ loop

Each waiting item has one token in a queue that blocks outside the GIL; with a token the lane takes the item at the
head. It owns that item while it runs it, and nothing else: no Kafka, no ledger. When the lane dies, the loop gets its
error.

To hand a batch to another thread and fetch it again takes 100 to 150 µs of the loop's and the lane's time, most of it
because both want the interpreter (measured 2026). A quicker model runs on the loop's own thread, inside `submit`: with
44 µs a batch, a process on two cores then answers a quarter more.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from queue import SimpleQueue
from threading import Lock, Thread

from worker.core.chunk import Batch, Finished
from worker.core.failures import ModelBroken, RunFailure, Stop
from worker.inference.facts import Runnable

# The weight of the newest run in the mean that tells whether the next batch will be brief.
NEWEST = 1 / 8
# A model on the loop's thread stays there until its batches take so many times `brief`. A busy machine doubles a run's
# processor time: without this every second batch of a model of 0.15 ms went to the lane (measured 2026).
STAYING = 2
# How many times `brief` the quickest of the last runs may take by the clock. Where all take longer, the model waits for
# something other than the processor. A mean would keep batches in the lane for too long: a busy machine takes the
# processor away for many ms at a time (18,000 rows/s while 37,000 came, measured 2026).
AT_MOST_WAITING = 4
LAST_RUNS = 8
# After one run that takes so many times `brief`, the model runs on the loop's thread no more: its time depends on its
# input, and the next such run would hold up the loop as well.
SURPRISE = 40

# An inference that takes fewer seconds of processor time runs on the loop's own thread. On two busy cores (2026) one of
# 0.23 ms is answered a quarter faster there than in a lane, and one of 0.76 ms a tenth slower. Where the interpreter
# takes three times as long, one of 0.29 ms is answered 1.7 times as fast, and one of 0.7 ms 1.1 times.
BRIEF = 0.0005


class _Usual:
    """The seconds that a run takes, judged by the last runs; infinite before the first."""

    def __init__(self, brief: float) -> None:
        self._brief = brief
        self._stays = False  # on the loop's thread
        self._processor = inf  # in the mean
        self._clocks: deque[float] = deque([inf], LAST_RUNS)

    def will_be_brief(self) -> bool:
        """True if the next run belongs on the loop's thread. Asked only while nothing runs."""
        most = self._brief * STAYING if self._stays else self._brief
        self._stays = self._processor < most and min(self._clocks) < self._brief * AT_MOST_WAITING
        return self._stays

    def ran(self, processor: float, clock: float) -> None:
        before = processor if self._processor == inf else self._processor
        self._processor = before + (processor - before) * NEWEST
        self._clocks.append(clock)
        if processor > self._brief * SURPRISE:
            self._brief = 0.0


class ThreadLane:
    """Runs one model on one thread. Every method except `running_since` is for the loop's thread."""

    more_ahead = 0  # brief ones run at once

    def __init__(
        self,
        model: Runnable,
        clock: Callable[[], float] = time.monotonic,
        *,
        brief: float = 0.0,
        processor_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """A model that lately took less than `brief` seconds runs on the loop's thread.

        `processor_clock` counts these seconds, for the thread that calls it.
        """
        self._model = model
        self._clock = clock
        self._processor_clock = processor_clock
        self._usual = _Usual(brief)
        self._waiting: deque[Batch | None] = deque()  # None: the warm-up batch
        self._tokens: SimpleQueue[None] = SimpleQueue()
        # Finished items, and a lock that is open when there may be one: half the price of a queue. `SimpleQueue.get`
        # waits for ever when a signal's handler takes longer than its timeout (CPython 3.11 and 3.12).
        self._done: deque[Finished] = deque()
        self._knock = Lock()
        self._knock.acquire()
        self._batches_out = self._probes_out = self._giving_way = 0
        self._dead: BaseException | None = None
        self._began: float | None = None
        # A daemon: a run that hangs must not keep a process alive that has decided to end.
        self._thread = Thread(target=self._serve, name="lane", daemon=True)
        self._thread.start()

    @property
    def in_flight(self) -> int:
        """Batches submitted and not yet fetched by `finished`, without probes and batches that give way."""
        return self._batches_out - self._giving_way

    @property
    def is_busy(self) -> bool:
        """True if a batch or a probe waits or runs."""
        return len(self._done) < self._batches_out + self._probes_out

    @property
    def running_since(self) -> float | None:
        """The instant when the running inference began, by this object's clock; None: none runs. Any thread."""
        return self._began

    def submit(self, batch: Batch) -> None:
        """Queue a batch behind all others, or run it at once if it will be brief and nothing is queued or running."""
        if not self.is_busy and self._usual.will_be_brief():
            self._run(batch)
        else:
            self._waiting.append(batch)
            self._tokens.put(None)
        self._batches_out += 1

    def resubmit(self, halves: Sequence[Batch]) -> None:
        """Put the halves of a failed batch at the head of the queue, in order; those that give way at its end."""
        self._waiting.extendleft(reversed([half for half in halves if not half.gives_way]))
        behind = [half for half in halves if half.gives_way]
        self._waiting.extend(behind)
        self._giving_way += len(behind)
        self._batches_out += len(halves)
        for _ in halves:
            self._tokens.put(None)

    def probe(self) -> None:
        """Run the warm-up batch next; `finished` returns it without a batch."""
        self._waiting.appendleft(None)
        self._probes_out += 1
        self._tokens.put(None)

    def finished(self, timeout: float) -> Sequence[Finished]:
        """Fetch what is done. Waits at most `timeout` seconds for the first item, and not at all if nothing is out.

        Raises `ModelBroken` when the lane died: its batch is unanswered. Items done before that are returned first.
        """
        if not self._batches_out + self._probes_out:
            return ()
        if timeout > 0 and not self._has_news():
            self._knock.acquire(blocking=False)  # it may be open for items fetched before
            if not self._has_news():
                self._knock.acquire(timeout=timeout)
        done: list[Finished] = []
        while self._done:
            done.append(self._done.popleft())
        if not done:
            self._raise_if_dead()
        probes = sum(finished.batch is None for finished in done)
        self._probes_out -= probes
        self._batches_out -= len(done) - probes
        self._giving_way -= sum(finished.batch is not None and finished.batch.gives_way for finished in done)
        return done

    def close(self, timeout: float) -> bool:
        """Drop waiting items and end the thread. False if it runs longer than `timeout` seconds; it dies with us."""
        self._waiting.clear()
        self._tokens.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _has_news(self) -> bool:
        return bool(self._done) or self._dead is not None

    def _raise_if_dead(self) -> None:
        error = self._dead
        if isinstance(error, Stop):
            raise error
        if error is not None:
            raise ModelBroken(f"an inference thread died of {type(error).__name__}: {error}") from error

    def _serve(self) -> None:
        while self._dead is None:
            self._tokens.get()
            try:
                batch = self._waiting.popleft()
            except IndexError:  # a token without an item: `close` was called
                return
            self._run(batch)
            # A batch's memory is freed when the loop is done with it, not when the next batch comes.
            del batch
            with suppress(RuntimeError):  # it is open already
                self._knock.release()

    def _run(self, batch: Batch | None) -> None:
        """Run a batch, or the warm-up batch. Raises nothing: `finished` does."""
        began = self._began = self._clock()
        used = self._processor_clock()
        try:
            outcome = self._model.probe() if batch is None else self._model.run(batch.all_feeds)
        except BaseException as error:  # noqa: BLE001  # nothing may die here unseen
            self._dead = error
            return
        finally:
            self._began = None
        seconds = self._clock() - began
        self._usual.ran(self._processor_clock() - used, seconds)
        outputs, failure = (None, outcome) if isinstance(outcome, RunFailure) else (outcome, None)
        self._done.append(Finished(batch, outputs, failure, seconds))

    def __repr__(self) -> str:
        return f"<ThreadLane in_flight={self.in_flight} waiting={len(self._waiting)}>"
