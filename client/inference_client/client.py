"""The client that programs use. It makes its parts, starts its thread, and ends both however the program ends."""

from __future__ import annotations

import _thread
import os
import secrets
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import ceil
from threading import Thread, current_thread
from types import TracebackType
from typing import Any, Literal, NamedTuple, NoReturn, Self

from numpy.typing import ArrayLike

from inference_client.answer import Answer
from inference_client.encoding import Encoder
from inference_client.exchange import Exchange, Route, Trouble
from inference_client.kafka import ReplyPartition, Topics, connect
from inference_client.records import RecordEncoder, Records
from inference_client.signature import Given, Inputs, Result, signature_of

Key = str | bytes | None

# `map` sends more when a quarter of the requests that may be under way have ended. Requests sent together travel
# together, which costs Kafka's client, the brokers and the worker less than one at a time.
REFILL = 4
# Seconds: the longest wait that librdkafka allows, 24 days.
LONGEST = 2_147_483
# Seconds for the thread to end: a turn, and the end of the connections.
STOP_TIMEOUT = 10.0


class Closed(NamedTuple):
    """The result of `close`: how many requests `ended` while it waited, and how many it `cancelled`."""

    ended: int
    cancelled: int


class InferenceClient:
    """Sends requests, and gives each a future that ends exactly once: with a result, an `InferenceError` or a timeout.

    One client serves many threads. It belongs to the process that made it: make another after a fork.
    """

    def __init__(  # noqa: PLR0913  # what a program may set, each by its name
        self,
        bootstrap: str,
        *,
        requests: str,
        answers: str,
        signature: Given = None,
        records: Records | None = None,
        timeout: float = 30.0,
        in_flight: int = 1000,
        when_full: Literal["wait", "raise"] = "wait",
        reply_partition: ReplyPartition = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """Connect, and note where the answers end now.

        Raises `Unavailable`, `ValueError` for impossible arguments, and `RuntimeError` if threads are not the system's.

        `signature`: the model's signature, its Open Inference Protocol metadata, or a worker's address for that,
        `http://…/v2/models/NAME`; None: the worker judges each tensor.
        `records`: the topics hold records: `submit` takes a dict, and the result is one; `Records()` means JSON.
        `timeout`: the seconds that a request may take, by default and at most. Here the brokers have as long to answer,
        but 2 s at least and 15 s at most. `in_flight`: requests at once; one more waits for a place, or raises `Full`.
        `reply_partition`: read answers only there, `any` picks a partition; None: read all partitions of `answers`, and
        skip the answers of other clients. `config`: librdkafka's settings, for both clients.
        """
        if not 0 < timeout <= LONGEST or in_flight < 1 or in_flight % 1:
            raise ValueError(f"timeout must be above 0 and at most {LONGEST:,} s, and in_flight at least 1, whole")
        if when_full not in {"wait", "raise"}:
            raise ValueError(f"when_full must be 'wait' or 'raise', got {when_full!r}")
        if requests == answers:
            raise ValueError(f"requests and answers must be two topics, got {requests!r} for both")
        if records is not None and signature is not None:
            raise ValueError("give a signature, for tensors, or records, not both")
        _check_threads()
        known = signature_of(signature)
        trouble = Trouble(time.monotonic)
        both = {**(config or {}), "bootstrap.servers": bootstrap}
        clients = connect(both, Topics(requests, answers, reply_partition), timeout, trouble.hear)
        self._encoder = Encoder(known) if records is None else RecordEncoder(records)
        self._timeout = timeout
        self._in_flight = in_flight
        self._exchange = Exchange(
            clients,
            self._encoder,
            Route(requests, answers, secrets.token_hex(8).encode()),
            trouble=trouble,
            most=in_flight,
            waits=when_full == "wait",
        )
        self._process = os.getpid()
        thread = Thread(target=self._exchange.run, name="inference-client", daemon=True)
        # Also runs when the client is garbage, and when the interpreter ends: a daemon thread must not be in librdkafka
        # then. Each future holds the client, so the client lives while a future is wanted.
        self._finalizer = weakref.finalize(self, _end, self._exchange, thread, self._process)
        try:
            thread.start()
        except RuntimeError:  # a container may allow no more
            self._exchange.stop()
            self._exchange.run()  # this only closes what was opened
            raise

    def submit(self, inputs: Inputs | ArrayLike, *, key: Key = None, timeout: float | None = None) -> Answer:
        """Send a request and return its future. An array alone stands for the only input of a known signature.

        With `records` the request is a record: a dict, or a text or bytes as the whole value.
        Raises `InvalidArgument` if the model does not take the inputs, `Full` or `DeadlineExceeded` if there is no
        place, `ClientClosed`, `Unavailable` and `ResourceExhausted`, and `TypeError` for a key of another type.
        """
        self._exchange.pending.check_process()
        seconds = self._timeout if timeout is None else self.allowed(timeout)
        answer = self._exchange.submit(self._encoder.encode(inputs), key, seconds)
        answer.holds = self
        return answer

    def infer(self, inputs: Inputs | ArrayLike, *, key: Key = None, timeout: float | None = None) -> Result:
        """Send a request and wait for its result. Raises as `submit` does, and the request's `InferenceError`."""
        return self.submit(inputs, key=key, timeout=timeout).result()

    def map(
        self,
        rows: Iterable[Inputs | ArrayLike],
        *,
        key: Callable[[Any], Key] | None = None,
        timeout: float | None = None,
        in_flight: int | None = None,
    ) -> Iterator[Result]:
        """Yield the results of many requests, in their order; `in_flight` requests are under way at once.

        `key` gives each row's key. The first request that fails raises its error here, and the others are cancelled.
        """
        most = min(in_flight or self._in_flight, self._in_flight)
        under_way: deque[Answer] = deque()
        try:
            for row in rows:
                if len(under_way) >= most:
                    for _ in range(ceil(most / REFILL)):
                        yield under_way.popleft().result()
                under_way.append(self.submit(row, key=key(row) if key else None, timeout=timeout))
            while under_way:
                yield under_way.popleft().result()
        finally:
            for answer in under_way:
                answer.cancel()

    def close(self, *, cancel: bool = False, timeout: float | None = None) -> Closed:
        """Take no more requests, and let requests under way end, or cancel them; at `timeout` the rest is cancelled.

        In a process that was forked from the client's own this does nothing.
        """
        if os.getpid() != self._process or not self._finalizer.alive:
            return Closed(0, 0)
        pending = self._exchange.pending
        pending.close()
        under_way = len(pending)
        if not cancel:
            pending.wait_until_empty(timeout)
        self._finalizer()
        return Closed(under_way - self._exchange.cancelled, self._exchange.cancelled)

    @property
    def longest(self) -> float:
        """Seconds that any request may take."""
        return self._timeout

    @property
    def under_way(self) -> int:
        """Requests without an answer."""
        return len(self._exchange.pending)

    @property
    def late(self) -> int:
        """Answers that came after their future had ended."""
        return self._exchange.pending.late

    @property
    def repeats(self) -> int:
        """Answers that came again. There are none if the worker delivers exactly once."""
        return self._exchange.pending.repeats

    def allowed(self, timeout: float) -> float:
        """The timeout that a request asks for. Raises `ValueError` if the client does not allow it."""
        if not 0 < timeout <= self._timeout:
            raise ValueError(f"timeout: above 0 and at most the client's own, {self._timeout:g} s, got {timeout:g} s")
        return timeout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Wait for requests under way; after an exception, such as Ctrl-C, cancel them."""
        self.close(cancel=kind is not None)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a client cannot be sent to another process; make one there")

    def __repr__(self) -> str:
        return f"<InferenceClient under_way={self.under_way} late={self.late} repeats={self.repeats}>"


def _check_threads() -> None:
    """Raises `RuntimeError` for green threads: one that waits in Kafka's client blocks all others for good."""
    maker = _thread.start_new_thread.__module__.partition(".")[0]
    if maker in {"gevent", "eventlet"}:
        raise RuntimeError(
            f"{maker} has replaced the system's threads, and a client needs one: have it patch with thread=False, or "
            "make the client in a process of its own"
        )


def _end(exchange: Exchange, thread: Thread, process: int) -> None:
    if os.getpid() == process:
        exchange.stop()
        was_started = thread.ident is not None
        if was_started and thread is not current_thread():  # this thread may drop a forgotten client's last future
            thread.join(STOP_TIMEOUT)
