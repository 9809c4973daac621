"""The inference threads: batches go in by one queue, outputs or failures come back by another.

    loop ── submit ──▶ [ waiting: halves and probes at the head ] ──▶ lane 1..n ──▶ [ done ] ── finished ──▶ loop

Each waiting item has one token in a queue that blocks outside the GIL; the lane that gets a token takes the item at the
head. The lanes own an item while they run it, and nothing else: no Kafka, no ledger. When a lane dies, the loop
gets its error.

To hand a batch to another thread and fetch it again takes 100 to 150 µs of the loop's and the lane's time, most of it
because both want the interpreter (measured 2026). A quicker model runs on the loop's own thread, inside `submit`: with
44 µs a batch, a process on two cores then answers a quarter more.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from math import inf
from queue import SimpleQueue
from threading import Barrier, Condition, Lock, Thread
from typing import NamedTuple, Protocol

from worker.core.chunk import Batch, Finished
from worker.core.failures import Code, ModelBroken, RunFailure, Stop
from worker.core.records import Array, ModelKey

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


class RunnableModel(Protocol):
    """The part of a model that the lanes use. Several lanes call it at once."""

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array] | RunFailure: ...
    def probe(self) -> Sequence[Array] | RunFailure: ...


class _SharedDevice:
    """Lets several lanes share one device: their runs are side by side, or one is alone. Owns the count of runs.

    A run that lacked memory next to others is repeated alone, as it would be with a single lane. Only a failure of the
    repeated run says something about its batch.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._running = 0
        self._lone = 0  # runs that are alone, or wait to be

    @contextmanager
    def running(self, *, alone: bool) -> Iterator[None]:
        """Wait until a run may begin: a lone one when all others have ended, any other while there is no lone one."""
        with self._changed:
            self._lone += alone
            self._changed.wait_for(lambda: not (self._running if alone else self._lone))
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._lone -= alone
                self._changed.notify_all()


class _Usual:
    """The seconds that a run of one model takes, judged by its last runs; infinite before the first."""

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


class _Probe(NamedTuple):
    """An order to run this model's warm-up batch again; with a barrier, all lanes begin it at once."""

    model: ModelKey
    together: Barrier | None = None


class InferenceLanes:
    """Runs models on `lanes` threads. Every method except `running_since` is for the loop's thread."""

    more_ahead = 0  # brief ones run at once

    def __init__(
        self,
        models: Mapping[ModelKey, RunnableModel],
        lanes: int = 1,
        clock: Callable[[], float] = time.monotonic,
        *,
        brief: float = 0.0,
        processor_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """With a single lane, a model that lately took less than `brief` seconds runs on the loop's thread.

        `processor_clock` counts these seconds, for the thread that calls it. Several lanes let one request pass
        another, so with them nothing runs on the loop's thread.
        """
        self._models = models
        self._clock = clock
        self._processor_clock = processor_clock
        self._usual = defaultdict[ModelKey, _Usual](partial(_Usual, brief if lanes == 1 else 0.0))
        self._waiting: deque[Batch | _Probe] = deque()
        self._tokens: SimpleQueue[None] = SimpleQueue()
        # Finished items, and a lock that is open when there may be one: half the price of a queue. `SimpleQueue.get`
        # waits for ever when a signal's handler takes longer than its timeout (CPython 3.11 and 3.12).
        self._done: deque[Finished | BaseException] = deque()
        self._knock = Lock()
        self._knock.acquire()
        self._batches_out = self._probes_out = 0
        self._device = _SharedDevice() if lanes > 1 else None
        self._dead: BaseException | None = None
        self._started: list[float | None] = [None] * (lanes + 1)  # the last one is the loop's thread
        # Daemon threads: a run that hangs must not keep a process alive that has decided to end.
        self._threads = [
            Thread(target=self._serve, args=(lane,), name=f"lane-{lane}", daemon=True) for lane in range(lanes)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def in_flight(self) -> int:
        """Batches submitted and not yet fetched by `finished`; probes are not counted."""
        return self._batches_out

    @property
    def is_busy(self) -> bool:
        """True if a batch or a probe waits or runs in a lane."""
        return len(self._done) < self._batches_out + self._probes_out

    @property
    def running_since(self) -> float | None:
        """The instant when the oldest running inference began, by this object's clock; None: none runs. Any thread."""
        return min((began for began in self._started if began is not None), default=None)

    def submit(self, batch: Batch) -> None:
        """Queue a batch behind all others, or run it at once if it will be brief and nothing is queued or running."""
        if not self.is_busy and self._usual[batch.model].will_be_brief():
            try:
                self._done.append(self._run(-1, batch))
            except BaseException as error:  # noqa: BLE001  # as in a lane: `finished` raises it
                self._done.append(error)
        else:
            self._waiting.append(batch)
            self._tokens.put(None)
        self._batches_out += 1

    def resubmit(self, halves: Sequence[Batch]) -> None:
        """Put the halves of a failed batch at the head of the queue, in order."""
        self._waiting.extendleft(reversed(halves))
        self._batches_out += len(halves)
        for _ in halves:
            self._tokens.put(None)

    def probe(self, model: ModelKey) -> None:
        """Run this model's warm-up batch next; `finished` returns it without a batch."""
        self._waiting.appendleft(_Probe(model))
        self._probes_out += 1
        self._tokens.put(None)

    def probe_each(self) -> Sequence[Finished]:
        """Run each model's warm-up batch in every lane, in all lanes at once. Returns the result of each run.

        So CUDA sets up its resources, for each thread and for parallel runs, before the first batch. Raises
        `ModelBroken` as `finished` does.
        """
        lanes = len(self._threads)
        for model in self._models:
            self._waiting += [_Probe(model, Barrier(lanes))] * lanes  # or one lane would take two, and another none
            self._probes_out += lanes
            for _ in self._threads:
                self._tokens.put(None)
        done: list[Finished] = []
        while self._probes_out:
            done += self.finished(1.0)
        return done

    def finished(self, timeout: float) -> Sequence[Finished]:
        """Fetch what is done. Waits at most `timeout` seconds for the first item, and not at all if nothing is out.

        Raises `ModelBroken` when a lane died: its batch is unanswered. Items done before that are returned first.
        """
        self._raise_if_dead()
        if not self._batches_out + self._probes_out:
            return ()
        done = self._fetch(timeout)
        probes = sum(1 for finished in done if finished.batch is None)
        self._probes_out -= probes
        self._batches_out -= len(done) - probes
        if not done:
            self._raise_if_dead()
        return done

    def close(self, timeout: float) -> bool:
        """Drop waiting items and end the threads. False if one runs longer than `timeout` seconds; it dies with us."""
        self._waiting.clear()
        for _ in self._threads:
            self._tokens.put(None)
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _fetch(self, timeout: float) -> list[Finished]:
        done: list[Finished] = []
        if not self._done and timeout > 0:
            self._knock.acquire(blocking=False)  # it may be open for items fetched before
            if not self._done:
                self._knock.acquire(timeout=timeout)
        while self._done:
            item = self._done.popleft()
            if not isinstance(item, Finished):
                self._dead = item
                break
            done.append(item)
        return done

    def _hand_back(self, item: Finished | BaseException) -> None:
        self._done.append(item)
        with suppress(RuntimeError):  # it is open already
            self._knock.release()

    def _raise_if_dead(self) -> None:
        error = self._dead
        if isinstance(error, Stop):
            raise error
        if error is not None:
            raise ModelBroken(f"an inference thread died of {type(error).__name__}: {error}") from error

    def _serve(self, lane: int) -> None:
        try:
            while True:
                self._tokens.get()
                try:
                    item = self._waiting.popleft()
                except IndexError:  # a token without an item: `close` was called
                    return
                if isinstance(item, _Probe) and item.together is not None:
                    item.together.wait()
                self._hand_back(self._run(lane, item))
                # A batch's memory is freed when the loop is done with it, not when the next batch comes.
                del item
        except BaseException as error:  # noqa: BLE001  # nothing may die here unseen: the loop raises it
            self._hand_back(error)

    def _run(self, lane: int, item: Batch | _Probe) -> Finished:
        """Run an item. If it lacks memory next to others it is run again alone, except a probe of all lanes at once."""
        if self._device is None:
            return self._run_once(lane, item)
        with self._device.running(alone=False):
            finished = self._run_once(lane, item)
        is_trial = isinstance(item, _Probe) and item.together is not None
        if is_trial or finished.failure is None or finished.failure.code is not Code.RESOURCE_EXHAUSTED:
            return finished
        with self._device.running(alone=True):
            return self._run_once(lane, item)

    def _run_once(self, lane: int, item: Batch | _Probe) -> Finished:
        model, batch = item.model, item if isinstance(item, Batch) else None
        runnable = self._models[model]
        began = self._started[lane] = self._clock()
        used = self._processor_clock()
        try:
            outcome = runnable.probe() if batch is None else runnable.run(batch.all_feeds)
            used, seconds = self._processor_clock() - used, self._clock() - began
        finally:
            self._started[lane] = None
        self._usual[model].ran(used, seconds)
        if isinstance(outcome, RunFailure):
            return Finished(batch, None, outcome, seconds, model)
        return Finished(batch, outcome, None, seconds, model)

    def __repr__(self) -> str:
        return f"<InferenceLanes lanes={len(self._threads)} in_flight={self.in_flight} waiting={len(self._waiting)}>"
