"""The requests under way, and the one rule by which each future ends once: who takes a request out of here ends it.

An answer, a failed delivery, the time, `cancel` and `close` all come to `take`, in whatever thread; one of them gets
the request and the others nothing. What comes after the time is late, and counted; what comes twice is a repeat.

Callbacks of callers never run on the thread that reads answers: one that waits for another answer would wait for ever.
"""

from __future__ import annotations

import heapq
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Condition, RLock, Thread
from typing import Any, Self

from inference_client.errors import ClientClosed, DeadlineExceeded, Full, InferenceError
from inference_client.signature import Result

_LOG = logging.getLogger("inference_client")

# Ids of requests whose time was over, by which a late answer is told from a repeat; of more the oldest are forgotten.
_MOST_LAPSED = 100_000
# The heap of times is made anew when so many in it are over, and most of it: else it would keep every request until its
# time, however soon its answer came.
_MOST_OVER = 1000
_IDLE = 1.0  # seconds without a callback after which their thread ends


class Answer(Future[Result]):
    """The future of one request. `cancel` gives up its place: its answer, if one comes, counts as late."""

    def __init__(self, pending: Pending, request_id: bytes, began: float, deadline: float) -> None:
        super().__init__()
        self.request_id = request_id
        self.began = began
        self.deadline = deadline
        self._pending = pending
        self.holds: object = None  # what must live as long as this

    def cancel(self) -> bool:
        """True when it ends, or had ended, as cancelled."""
        if not super().cancel():
            return False
        if self._pending.take(self.request_id, lapses=True) is not None:
            self.set_running_or_notify_cancel()
        return True

    def add_done_callback(self, fn: Callable[[Future[Result]], object]) -> None:
        """Call it on the thread for callbacks, one after the other. One that raises is logged."""
        super().add_done_callback(lambda _: self._pending.call(fn, self))

    def when_done(self, fn: Callable[[Self], object]) -> None:
        """Call it on the thread that ends the future. It must not wait for anything."""
        super().add_done_callback(fn)  # type: ignore[arg-type]  # it is called with this very future

    def end(self, outcome: Result | InferenceError) -> None:
        """To be called by who has taken it out of the table."""
        try:
            if isinstance(outcome, InferenceError):
                self.set_exception(outcome)
            else:
                self.set_result(outcome)
        except InvalidStateError:  # it was cancelled a moment ago
            self.set_running_or_notify_cancel()

    def on_delivery(self, error: Any, _: object) -> None:
        """Given to the producer, which calls it where a record was not delivered."""
        if error is not None:
            self._pending.undelivered(self, error)


Callback = tuple[Callable[[Future[Result]], object], Answer]


class Pending:
    """The table. `late` counts answers that came after their time, `repeats` those that came again."""

    def __init__(self, most: int, *, waits: bool, explain: Callable[[Any], InferenceError]) -> None:
        """At most so many at once; then `enter` waits, or does not. `explain` says what a failed delivery means."""
        self._most = most
        self._waits = waits
        self._explain = explain
        self._table: dict[bytes, Answer] = {}
        self._lock = RLock()  # guards nothing but the count: a dict is changed in one step
        self._room = Condition(self._lock)
        self._waiting = 0
        self._new: deque[tuple[float, bytes]] = deque()
        self._times: list[tuple[float, bytes]] = []
        self._lapsed: dict[bytes, None] = {}
        self._callbacks: SimpleQueue[Callback] = SimpleQueue()
        self._caller: Thread | None = None
        self.is_closed = False
        self.late = 0
        self.repeats = 0

    def __len__(self) -> int:
        return len(self._table)

    def enter(self, answer: Answer, timeout: float) -> None:
        """Give it a place, waiting at most so many seconds for one.

        Raises `Full`, `DeadlineExceeded` and `ClientClosed`.
        """
        with self._lock:  # 0.3 µs less than by the condition (measured 2026)
            if len(self._table) >= self._most:
                self._wait_for_room(timeout)
            if self.is_closed:
                raise ClientClosed("the client is closed")
            self._table[answer.request_id] = answer
        self._new.append((answer.deadline, answer.request_id))

    def _wait_for_room(self, timeout: float) -> None:
        if not self._waits:
            raise Full(f"{self._most} requests are under way")
        self._waiting += 1
        try:
            if not self._room.wait_for(lambda: len(self._table) < self._most or self.is_closed, timeout):
                raise DeadlineExceeded(f"{self._most} requests are under way, and none ended in {timeout:g} s")
        finally:
            self._waiting -= 1

    def take(self, request_id: bytes, *, lapses: bool = False) -> Answer | None:
        """The request, for the first who asks; None ever after. `lapses`: an answer that still comes is late."""
        answer = self._table.pop(request_id, None)
        if answer is None:
            return None
        if lapses:
            self._lapse(request_id)
        if self._waiting or (self.is_closed and not self._table):
            with self._room:
                self._room.notify_all()
        return answer

    def _lapse(self, request_id: bytes) -> None:
        self._lapsed[request_id] = None
        if len(self._lapsed) > _MOST_LAPSED:
            self._lapsed.pop(next(iter(self._lapsed)), None)

    def answered(self, request_id: bytes) -> Answer | None:
        """Whose answer this is; None for one that is late, or comes again."""
        answer = self.take(request_id)
        if answer is not None:
            return answer
        if request_id in self._lapsed:
            self._lapsed.pop(request_id, None)
            self.late += 1
        else:
            self.repeats += 1
        return None

    def undelivered(self, answer: Answer, error: Any) -> None:
        """It may be in the topic all the same: an answer that comes is late."""
        if self.take(answer.request_id, lapses=True) is not None:
            answer.end(self._explain(error))

    def lapse(self, now: float, why: Callable[[Answer], str]) -> None:
        """End those whose time is over. Called by one thread."""
        while self._new:
            heapq.heappush(self._times, self._new.popleft())
        while self._times and self._times[0][0] <= now:
            answer = self.take(heapq.heappop(self._times)[1], lapses=True)
            if answer is not None:
                answer.end(DeadlineExceeded(why(answer)))
        if len(self._times) > 2 * len(self._table) + _MOST_OVER:
            self._times = [entry for entry in self._times if entry[1] in self._table]
            heapq.heapify(self._times)

    def close(self) -> None:
        """Let none in any more."""
        with self._room:
            self.is_closed = True
            self._room.notify_all()

    def wait_until_empty(self, timeout: float | None) -> bool:
        """Once it is closed."""
        with self._room:
            return self._room.wait_for(lambda: not self._table, timeout)

    def end_all(self, error: InferenceError | None) -> int:
        """With this error, or as cancelled. How many there were."""
        taken = [answer for at in list(self._table) if (answer := self.take(at, lapses=True)) is not None]
        for answer in taken:
            if error is not None:
                answer.end(error)
            else:
                Future.cancel(answer)
                answer.set_running_or_notify_cancel()
        return len(taken)

    def call(self, fn: Callable[[Future[Result]], object], answer: Answer) -> None:
        """Have a callback called, by a thread that is started for the first."""
        with self._room:
            self._callbacks.put((fn, answer))
            if self._caller is None:
                self._caller = Thread(target=self._call_back, name="inference-client-callbacks", daemon=True)
                self._caller.start()

    def _call_back(self) -> None:
        while (callback := self._next_callback()) is not None:
            fn, answer = callback
            try:
                fn(answer)
            except BaseException:  # noqa: BLE001  # whatever it raises is its own, and must not end the others
                _LOG.exception("a callback of an answer failed")
            del callback, fn, answer  # or the last result would be held until the next

    def _next_callback(self) -> Callback | None:
        """None, once there has been none for a while: then the thread is no more."""
        with suppress(Empty):
            return self._callbacks.get(timeout=_IDLE)
        with self._room:
            with suppress(Empty):
                return self._callbacks.get_nowait()
            self._caller = None
            return None

    def __repr__(self) -> str:
        return f"<Pending {len(self)} of {self._most} late={self.late} repeats={self.repeats}>"
