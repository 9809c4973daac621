"""The requests under way, and the one rule by which each future ends once: who takes a request out of here ends it.

An answer, a failed delivery, the time, `cancel` and `close` all come to `take`, in whatever thread; one of them gets
the request and the others nothing. What comes after the time is late, and counted; what comes twice is a repeat.

Callbacks of callers never run on the thread that reads answers: one that waits for another answer would wait for ever.
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

# Ids of requests whose time was over, by which a late answer is told from a repeat; of more the oldest are forgotten.
_MOST_LAPSED = 100_000
# How often the table is looked through for times that are over, at most, seconds: 100,000 requests take 9 ms
# (2026-11).
LOOK_AGAIN = 0.02
# Who waits for a place waits so long for many, seconds: what is sent together costs all less, and two threads that wake
# each other for one place at a time do little else.
PATIENCE = 0.005
_IDLE = 1.0  # seconds without a callback after which their thread ends
# What `Message.headers()` of confluent-kafka 2.16 raises for a name that is not UTF-8, which no worker writes; to Kafka
# a name is any bytes. Such a call sets the exception and returns a list all the same. In code that ran often Python
# does not look whether one is set behind a call, and what looks next raises it: here `headers[-1]`. To use what is in
# that list, or to ask for it again, ends the process (SIGSEGV, seen 2026).
_NO_UTF8 = (SystemError, UnicodeError)

# How many forks lie between this process and the first. To ask the system which process this is, at each request, took
# 6 % of the client's time (py-spy, 2026-11).
_forks = 0


def _count_fork() -> None:
    global _forks  # noqa: PLW0603  # a fork is the process's, as this is
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)

Headers = Sequence[tuple[str, bytes | None]]
Callback = tuple[Callable[[Future[Result]], object], Answer]


class Pending:
    """The table. `late` counts answers that came after their time, `repeats` those that came again."""

    def __init__(
        self,
        most: int,
        *,
        waits: bool,
        read: Callable[[Message], Result | InferenceError],
        explain: Callable[[Any, Answer], InferenceError],
    ) -> None:
        """At most so many at once; then `enter` waits, or does not.

        `read` says what an answer holds; `explain` what a failed delivery means.
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
        """Raises `ClientClosed` in a child of the process that this was made in: its thread is not here."""
        if self._forks != _forks:
            raise ClientClosed(
                f"this client belongs to process {self._process}, which this one was forked from; make a new one here"
            )

    def enter(self, answer: Answer, timeout: float) -> bool:
        """Give it a place, waiting at most so many seconds for one. Whether it had to wait.

        Raises `Full`, `DeadlineExceeded` and `ClientClosed`.
        """
        with self.lock:  # 0.3 µs less than by the condition (measured 2026)
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
        """The request, for the first who asks; None ever after. `lapses`: an answer that still comes is late."""
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
        """End those whose answers these are. The others, each with the id that it bears: none of those is under way."""
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
            waited_for = [answer for answer, outcome in ended if answer.ends(outcome)]
        for answer in waited_for:
            answer.tell()
        self._tell_of_room()  # once for all: each who waits is woken, and finds room for many
        return left

    def count(self, request_id: bytes) -> None:
        """An answer to one that has ended: it is late, or comes again."""
        with self.lock:
            if request_id in self._lapsed:
                del self._lapsed[request_id]
                self.late += 1
            else:
                self.repeats += 1

    def undelivered(self, answer: Answer, error: Any) -> None:
        """It may be in the topic all the same: an answer that comes is late."""
        if self.take(answer.request_id, lapses=True) is not None:
            answer.end(self._explain(error, answer))

    def give_up(self, answer: Answer) -> bool:
        """Cancel it. False where it has ended, or is about to."""
        if self.take(answer.request_id, lapses=True) is None:
            return False
        answer.end(CANCELLED)
        return True

    def lapse(self, now: float, why: Callable[[Answer, float], str]) -> None:
        """End those whose time is over. Called by one thread."""
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
        """Let none in any more."""
        with self._room:
            self.is_closed = True
            self._room.notify_all()

    def wait_until_empty(self, timeout: float | None) -> bool:
        """Once it is closed."""
        with self._room:
            return self._room.wait_for(lambda: not self._table, timeout)

    def end_all(self, outcome: Outcome) -> int:
        """With this. How many there were."""
        taken = [answer for at in list(self._table) if (answer := self.take(at, lapses=True)) is not None]
        for answer in taken:
            answer.end(outcome)
        return len(taken)

    def call(self, fn: Callable[[Future[Result]], object], answer: Answer) -> None:
        """Have a callback called, by a thread that is started for the first."""
        with self._room:
            self._callbacks.put((fn, answer))
            if self._caller is None:
                caller = Thread(target=self._call_back, name="inference-client-callbacks", daemon=True)
                caller.start()
                self._caller = caller  # only now: where there are too many threads for one more, the next asks again

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


def request_id_of(headers: Headers | None) -> bytes:
    """The id that a message bears; empty where it bears none."""
    if not headers:
        return b""
    name, value = headers[-1]  # a worker writes it last, but for what it echoes
    if name != "request-id":
        value = dict(headers).get("request-id")
    return value or b""
