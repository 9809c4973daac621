"""The table of requests under way. Each future ends once by one rule: who takes a request out of the table ends it.

An answer, a failed delivery, the time, `cancel` and `close` all take requests out, on any thread. The first gets the
request, and the others get nothing. An answer after the time is late, and counted; a second answer is a repeat.

Callers' callbacks never run on the thread that reads answers: a callback that waits for another answer would hang.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from math import inf
from queue import Empty, SimpleQueue
from threading import Condition, RLock, Thread
from typing import Any

from inference_client.answer import CANCELLED, Answer, Outcome
from inference_client.encoding import Message
from inference_client.errors import ClientClosed, DeadlineExceeded, Full, InferenceError
from inference_client.signature import Result

_LOG = logging.getLogger("inference_client")

# The most ids of requests whose time was over. They tell a late answer from a repeat; the oldest are forgotten first.
_MOST_LAPSED = 100_000
# The least seconds between two searches of the table for times that are over: 100,000 requests take 9 ms (2026-11).
LOOK_AGAIN = 0.02
# Seconds that a thread without a place waits for many places. Requests sent together cost less, and two threads that
# wake each other for one place at a time do little else.
PATIENCE = 0.005
_IDLE = 1.0  # seconds without a callback after which their thread ends
# `Message.headers()` of confluent-kafka 2.16 raises these for a name that is not UTF-8, which no worker writes; Kafka
# allows any bytes. Such a call sets the exception and still returns a list. In code that ran often Python does not
# check for an exception after each call: the next operation that checks raises it, here `headers[-1]`. Using the list's
# items, or asking for the list again, ends the process (SIGSEGV, seen 2026).
_NO_UTF8 = (SystemError, UnicodeError)

# The number of forks between the first process and this one. To ask the system for the process id, at each request,
# took 6 % of the client's time (py-spy, 2026-11).
_forks = 0


def _count_fork() -> None:
    global _forks  # noqa: PLW0603  # a fork concerns the whole process, as this count does
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)

Headers = Sequence[tuple[str, bytes | None]]
Callback = tuple[Callable[[Future[Result]], object], Answer]


class Pending:
    """The table. `late` counts answers that came after their time, `repeats` answers that came again."""

    def __init__(
        self,
        most: int,
        *,
        waits: bool,
        read: Callable[[Message], Result | InferenceError],
        explain: Callable[[Any, Answer], InferenceError],
    ) -> None:
        """At most `most` requests at once. Then `enter` waits if `waits` is True, else it raises `Full`.

        `read` decodes an answer; `explain` turns a failed delivery into an error.
        """
        self._most = most
        self._waits = waits
        self._read = read
        self._explain = explain
        self._table: dict[bytes, Answer] = {}
        self.lock = RLock()  # a signal's handler may call `close` in a thread that is in here
        self._room = Condition(self.lock)
        self._waiting = 0
        self._soonest = inf  # no time in the table is over before this
        self._lapsed: dict[bytes, None] = {}
        self._callbacks: SimpleQueue[Callback] = SimpleQueue()
        self._caller: Thread | None = None
        self.is_closed = False
        self._process, self._forks = os.getpid(), _forks
        self.late = 0
        self.repeats = 0

    def __len__(self) -> int:
        return len(self._table)

    def check_process(self) -> None:
        """Raises `ClientClosed` in a child of the process that made this table: the child lacks the client's thread."""
        if self._forks != _forks:
            raise ClientClosed(
                f"this client belongs to process {self._process}, which this one was forked from; make a new one here"
            )

    def enter(self, answer: Answer, timeout: float) -> bool:
        """Give the request a place, waiting at most `timeout` seconds for one. Returns True if it had to wait.

        Raises `Full`, `DeadlineExceeded` and `ClientClosed`.
        """
        with self.lock:  # 0.3 µs less than with the condition (measured 2026)
            if has_waited := len(self._table) >= self._most:
                self._wait_for_room(timeout)
            if self.is_closed:
                raise ClientClosed("the client is closed")
            self._table[answer.request_id] = answer
            if answer.deadline < self._soonest:  # noqa: PLR1730  # `min` takes twice as long
                self._soonest = answer.deadline
        return has_waited

    def _wait_for_room(self, timeout: float) -> None:
        if not self._waits:
            raise Full(f"{self._most} requests are under way")
        self._waiting += 1
        try:
            has_room = self._room.wait_for(lambda: self._has_room(self._most // 4), min(timeout, PATIENCE))
            if not has_room and not self._room.wait_for(self._has_room, timeout - PATIENCE):
                raise DeadlineExceeded(f"{self._most} requests are under way, and none ended in {timeout:g} s")
        finally:
            self._waiting -= 1

    def _has_room(self, more: int = 0) -> bool:
        return len(self._table) + more < self._most or self.is_closed

    def take(self, request_id: bytes, *, lapses: bool = False) -> Answer | None:
        """Take out the request; None if it is taken already. `lapses`: an answer that still comes is late."""
        with self.lock:
            answer = self._table.pop(request_id, None)
            if answer is not None and lapses:
                self._lapse(request_id)
        self._tell_of_room()
        return answer

    def _lapse(self, request_id: bytes) -> None:
        self._lapsed[request_id] = None
        if len(self._lapsed) > _MOST_LAPSED:
            self._lapsed.pop(next(iter(self._lapsed)), None)

    def _tell_of_room(self) -> None:
        if self._waiting or (self.is_closed and not self._table):
            with self._room:
                self._room.notify_all()

    def answered(self, messages: Sequence[Message]) -> list[tuple[Message, bytes]]:
        """End the requests that these answer. Returns the other messages, each with its id, which is not under way."""
        ended, left = [], []
        for message in messages:
            try:
                request_id = request_id_of(message.headers())
            except _NO_UTF8:
                request_id = b""
            answer = self._table.pop(request_id, None)  # one step: no lock is needed
            if answer is not None:
                ended.append((answer, self._read(message)))
            else:
                left.append((message, request_id))
        with self.lock:
            waited_for = [answer for answer, outcome in ended if answer.end_locked(outcome)]
        for answer in waited_for:
            answer.tell()
        self._tell_of_room()  # once for all messages: each waiting thread wakes, and finds room for many
        return left

    def count(self, request_id: bytes) -> None:
        """Count an answer to a request that has ended: the answer is late, or comes again."""
        with self.lock:
            if request_id in self._lapsed:
                del self._lapsed[request_id]
                self.late += 1
            else:
                self.repeats += 1

    def undelivered(self, answer: Answer, error: Any) -> None:
        """End a request that was not delivered. It may be in the topic nevertheless: an answer that comes is late."""
        if self.take(answer.request_id, lapses=True) is not None:
            answer.end(self._explain(error, answer))

    def give_up(self, answer: Answer) -> bool:
        """Cancel the request. False if it has ended, or is about to."""
        if self.take(answer.request_id, lapses=True) is None:
            return False
        answer.end(CANCELLED)
        return True

    def lapse(self, now: float, why: Callable[[Answer, float], str]) -> None:
        """End the requests whose time is over. Called by one thread."""
        if now < self._soonest:
            return
        with self.lock:
            over = [answer for answer in self._table.values() if answer.deadline <= now]
            for answer in over:
                self.take(answer.request_id, lapses=True)
            soonest = min((answer.deadline for answer in self._table.values()), default=inf)
            self._soonest = max(soonest, now + LOOK_AGAIN)
        for answer in over:
            answer.end(DeadlineExceeded(why(answer, now)))

    def close(self) -> None:
        """Take in no more requests."""
        with self._room:
            self.is_closed = True
            self._room.notify_all()

    def wait_until_empty(self, timeout: float | None) -> bool:
        """Wait until the closed table is empty. Returns False if `timeout` seconds are not enough."""
        with self._room:
            return self._room.wait_for(lambda: not self._table, timeout)

    def end_all(self, outcome: Outcome) -> int:
        """End all requests with this outcome. Returns how many there were."""
        taken = [answer for at in list(self._table) if (answer := self.take(at, lapses=True)) is not None]
        for answer in taken:
            answer.end(outcome)
        return len(taken)

    def call(self, fn: Callable[[Future[Result]], object], answer: Answer) -> None:
        """Have a callback called by the callbacks' thread, which the first callback starts."""
        with self._room:
            self._callbacks.put((fn, answer))
            if self._caller is None:
                caller = Thread(target=self._call_back, name="inference-client-callbacks", daemon=True)
                caller.start()
                self._caller = caller  # only now: if no thread can be started, the next callback tries again

    def _call_back(self) -> None:
        while (callback := self._next_callback()) is not None:
            fn, answer = callback
            try:
                fn(answer)
            except BaseException:  # noqa: BLE001  # its errors must not end the other callbacks
                _LOG.exception("a callback of an answer failed")
            del callback, fn, answer  # otherwise the last result is held until the next callback

    def _next_callback(self) -> Callback | None:
        """The next callback; None if none came for a while: then the thread ends."""
        with suppress(Empty):
            return self._callbacks.get(timeout=_IDLE)
        with self._room:
            with suppress(Empty):
                return self._callbacks.get_nowait()
            self._caller = None
            return None

    def __repr__(self) -> str:
        return f"<Pending {len(self)} of {self._most} late={self.late} repeats={self.repeats}>"


def request_id_of(headers: Headers | None) -> bytes:
    """The id of a message; empty if it has none."""
    if not headers:
        return b""
    name, value = headers[-1]  # a worker writes the id last, except for echoed headers
    if name != "request-id":
        value = dict(headers).get("request-id")
    return value or b""
