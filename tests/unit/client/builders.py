"""A client's exchange over fakes, with a clock that tests control."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from inference_client.answer import Answer
from inference_client.encoding import Encoder
from inference_client.exchange import Clients, Exchange, Route, Trouble
from inference_client.signature import Signature

METADATA = {
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}],
}
SIGNATURE = Signature.of(METADATA)
ROW = np.array([[1, 2, 3]], "f4")
Y = np.array([[0.5, 0.25]], "f4")


class Record(NamedTuple):
    """A message of Kafka's client: an answer or an error."""

    fields: Sequence[tuple[str, bytes | None]] | None
    body: bytes | None = None
    failure: KafkaError | None = None
    stamp: tuple[int, int] = (0, -1)

    def error(self) -> KafkaError | None:
        return self.failure

    def headers(self) -> Sequence[tuple[str, bytes | None]] | None:
        return self.fields

    def value(self) -> bytes | None:
        return self.body

    def timestamp(self) -> tuple[int, int]:
        return self.stamp


class Nameless:
    """A message with a header whose name is not UTF-8, in the form that Kafka's client delivers."""

    def __init__(self) -> None:
        self._looks = 0

    def error(self) -> KafkaError | None:
        return None

    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        self._looks += 1
        assert self._looks == 1, "a second look ends the process"
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")

    def value(self) -> bytes | None:
        return b""

    def timestamp(self) -> tuple[int, int]:
        return 0, -1


class Sent(NamedTuple):
    """A record that was handed to the producer."""

    topic: str
    value: bytes
    key: Any
    headers: dict[str, bytes]
    on_delivery: Callable[[KafkaError | None, object], None]

    @property
    def request_id(self) -> bytes:
        return self.headers["request-id"]


class FakeProducer:
    """Takes `room` records. A poll reports the deliveries that a test made fail."""

    def __init__(self, room: int = 1_000_000) -> None:
        self.sent: list[Sent] = []
        self.room = room
        self.failure: KafkaError | None = None  # what `produce` raises
        self.is_purged = False
        self._reports: deque[Callable[[], None]] = deque()

    def produce(  # noqa: PLR0917  # the signature of Kafka's client
        self,
        topic: str,
        value: bytes,
        key: Any,
        partition: int,
        callback: Any,
        on_delivery: Any,
        timestamp: int,
        headers: Sequence[tuple[str, bytes]],
    ) -> None:
        if self.failure is not None:
            raise KafkaException(self.failure)
        if len(self.sent) >= self.room:
            raise BufferError("Local: Queue full")
        self.sent.append(Sent(topic, value, key, dict(headers), callback))

    def fail(self, sent: Sent, code: int) -> None:
        """Report a failed delivery at the next poll."""
        self._reports.append(lambda: sent.on_delivery(KafkaError(code), None))

    def poll(self, timeout: float) -> int:
        while self._reports:
            self._reports.popleft()()
        return 0

    def purge(self) -> None:
        self.is_purged = True


class FakeConsumer:
    """Delivers the messages that a test has put into it."""

    def __init__(self, partitions: int = 2) -> None:
        self.arrived: deque[Record | Nameless] = deque()
        self.assigned = [TopicPartition("answers", number, 7) for number in range(partitions)]
        self.is_closed = False
        self.failure: Exception | None = None  # what `poll` raises

    def poll(self, timeout: float) -> Any:
        if self.failure is not None:
            raise self.failure
        return self.arrived.popleft() if self.arrived else None

    def consume(self, num_messages: int, timeout: float) -> Sequence[Any]:
        return [self.arrived.popleft() for _ in range(min(num_messages, len(self.arrived)))]

    def assignment(self) -> list[TopicPartition]:
        return self.assigned

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        self.assigned = [*self.assigned, *partitions]

    def close(self) -> None:
        self.is_closed = True


class Stage:
    """An exchange, its two fakes, and the time."""

    def __init__(
        self,
        *,
        most: int = 1000,
        waits: bool = False,
        room: int = 1_000_000,
        signature: Signature | None = SIGNATURE,
        partitions_now: Callable[[float], int | None] | None = None,
    ) -> None:
        self.now = 100.0
        self.amiss = ""  # problem with the topics
        self.asked = 0
        self.producer = FakeProducer(room)
        self.consumer = FakeConsumer()
        self.trouble = Trouble(lambda: self.now)
        self.encoder = Encoder(signature)
        self.exchange = Exchange(
            Clients(cast("Any", self.producer), self.consumer, (), partitions_now, self._amiss_now),
            self.encoder,
            Route("requests", "answers", b"me"),
            trouble=self.trouble,
            most=most,
            waits=waits,
            clock=lambda: self.now,
        )
        self.pending = self.exchange.pending

    def _amiss_now(self, wait: float) -> str:
        self.asked += 1
        return self.amiss

    def submit(self, timeout: float = 10.0) -> Answer:
        return self.exchange.submit(self.encoder.encode({"x": ROW}), b"k", timeout)

    def arrive(self, answer: Answer | bytes, status: bytes = b"ok", body: bytes = Y.tobytes(), **more: bytes) -> None:
        """Let an answer arrive; the next turn reads it."""
        request_id = answer.request_id if isinstance(answer, Answer) else answer
        headers = {"status": status, "source": b"requests/0/7", "request-id": request_id, **more}
        self.consumer.arrived.append(Record([*headers.items(), ("empty", None)], body))

    def turn(self, seconds: float = 0.0) -> None:
        """Advance the clock, and run one turn of the thread."""
        self.now += seconds
        self.exchange.turn(0.0)
