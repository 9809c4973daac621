"""One life of a program that asks: the client library, or a loop as it is often written. Prints its books.

    python -m tests.kafka.askers client|shared|own BOOTSTRAP REQUESTS ANSWERS FOLDER SUBMITS RATE TIMEOUT GRACE

FOLDER has `rows.f32` and `expected.f32`. It submits at a steady rate and waits for all. A future that has not ended
`GRACE` seconds after its time never ends. `shared` and `own` are the loop with its service's consumer group, and with
a group for each instance.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from confluent_kafka import Consumer, Producer

from inference_client import Answer, DeadlineExceeded, InferenceClient

WIDTH, OUTPUTS = 16, 4
METADATA = {
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, WIDTH]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, OUTPUTS]}],
}
# For answers that come again after the last future has ended, seconds.
AFTERWARDS = 1.0


class Order(NamedTuple):
    """What the command line says."""

    bootstrap: str
    requests: str
    answers: str
    folder: Path
    submits: int
    rate: float
    timeout: float
    grace: float

    @classmethod
    def of(cls, words: list[str]) -> Order:
        bootstrap, requests, answers, folder, submits, *seconds = words
        return cls(bootstrap, requests, answers, Path(folder), int(submits), *map(float, seconds))


def by_client(order: Order) -> Counter[str]:
    """The client library."""
    ends: Counter[bytes] = Counter()
    with InferenceClient(
        order.bootstrap,
        requests=order.requests,
        answers=order.answers,
        signature=METADATA,
        timeout=order.timeout,
        in_flight=order.submits,
    ) as client:

        def ended(answer: Answer) -> None:
            ends[answer.request_id] += 1

        def ask(row: np.ndarray, key: bytes) -> Future[Any]:
            answer = client.submit(row, key=key)
            answer.when_done(ended)
            return answer

        books = judged(order, ask, lambda future: future.result()["y"][0])
    more = {"late": client.late, "repeats": client.repeats, "ended_twice": sum(count > 1 for count in ends.values())}
    return books + Counter(more)


class Loop:
    """A dictionary of futures by correlation id, and a thread that reads the answers with a group."""

    def __init__(self, order: Order, group: str) -> None:
        self._topic = order.requests
        self._producer = Producer({"bootstrap.servers": order.bootstrap})
        self._consumer = Consumer(
            {"bootstrap.servers": order.bootstrap, "group.id": group, "auto.offset.reset": "latest"}
        )
        self._consumer.subscribe([order.answers])
        self._pending: dict[str, Future[np.ndarray]] = {}
        self._asked: set[str] = set()  # for the books alone
        self._is_stopping = False
        self.books: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def ask(self, row: np.ndarray, key: bytes) -> Future[Any]:
        """Its future."""
        name, future = str(uuid.uuid4()), Future[np.ndarray]()
        self._pending[name] = future
        self._asked.add(name)
        headers: list[tuple[str, str | bytes | None]] = [
            ("content-type", b"application/octet-stream"),
            ("correlation-id", name.encode()),
        ]
        self._producer.produce(self._topic, row.tobytes(), key, headers=headers)
        self._producer.poll(0)
        return future

    def _read(self) -> None:
        while not self._is_stopping:
            message = self._consumer.poll(0.1)
            if message is None or message.error():
                continue
            headers: dict[str, Any] = dict(message.headers() or ())
            name = headers.get("correlation-id", b"").decode()
            future = self._pending.pop(name, None)
            if future is None:
                self.books["repeats" if name in self._asked else "of_others"] += 1
            elif headers.get("status") != b"ok":
                future.set_exception(RuntimeError(message.value()))
            else:
                future.set_result(np.frombuffer(message.value() or b"", "<f4"))

    def close(self) -> None:
        """In good order."""
        self._is_stopping = True
        self._thread.join()
        self._consumer.close()


def by_loop(order: Order, group: str) -> Counter[str]:
    """The loop."""
    loop = Loop(order, group)
    books = judged(order, loop.ask, lambda future: future.result())
    time.sleep(AFTERWARDS)
    loop.close()
    return books + loop.books


def judged(
    order: Order, ask: Callable[[np.ndarray, bytes], Future[Any]], read: Callable[[Future[Any]], np.ndarray]
) -> Counter[str]:
    """Submit all and wait for all; what became of them."""
    rows = np.fromfile(order.folder / "rows.f32", "<f4").reshape(-1, WIDTH)
    expected = np.fromfile(order.folder / "expected.f32", "<f4").reshape(-1, OUTPUTS)
    futures, began = [], time.monotonic()
    for at in range(order.submits):
        time.sleep(max(0.0, began + at / order.rate - time.monotonic()))
        futures.append(ask(rows[at % len(rows)], b"%d" % (at % len(rows) % 997)))
    wait(futures, order.timeout + order.grace)
    books = Counter(submits=order.submits)
    for at, future in enumerate(futures):
        books[_end(future, read, expected[at % len(rows)])] += 1
    return books


def _end(future: Future[Any], read: Callable[[Future[Any]], np.ndarray], expected: np.ndarray) -> str:
    if not future.done():
        return "never_ended"
    error = future.exception()
    if error is not None:
        return "timeouts" if isinstance(error, DeadlineExceeded) else "errors"
    found = read(future)
    return "right" if found.shape == expected.shape and np.allclose(found, expected, 1e-4, 1e-5) else "wrong"


def main() -> None:
    """Print the books as JSON."""
    kind, order = sys.argv[1], Order.of(sys.argv[2:])
    if kind == "client":
        books = by_client(order)
    else:
        group = f"askers-{order.requests}" if kind == "shared" else f"asker-{uuid.uuid4()}"
        books = by_loop(order, group)
    print(json.dumps(books))  # noqa: T201


if __name__ == "__main__":
    main()
