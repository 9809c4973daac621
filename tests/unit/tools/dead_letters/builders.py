"""Dead letters as a worker writes them, with defaults, and a fake way to send them back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from worker.codecs.dead_letters import DeadLetters, Letter, read
from worker.core.failures import Code
from worker.core.records import Headers, Partition, Record, Rejection, ReplyForm

DEAD = Partition("dead", 0)


def dead_record(
    offset: int = 0,
    *,
    code: Code = Code.INVALID_ARGUMENT,
    message: str = "no",
    request_topic: str = "requests",
    key: bytes | None = b"k",
    value: bytes | None = b"{}",
    headers: Sequence[tuple[str, bytes | None]] = (),
    time_ms: int | None = 1000,
    limit: int = 1_000_000,
    partition: Partition = DEAD,
) -> Record:
    """The record at `offset` of the dead-letter topic, for the request at `offset` + 100 of partition 2."""
    request = Record(Partition(request_topic, 2), offset + 100, key, value, headers, None)
    said = DeadLetters("dead", "group", limit).letter(Rejection(request, code, message, ReplyForm("application/json")))
    return Record(partition, offset, said.key, said.value, said.headers, time_ms)


def letter(offset: int = 0, **given: Any) -> Letter:
    """A dead letter, read from `dead_record`."""
    return read(dead_record(offset, **given))


class Sent(NamedTuple):
    """One record that was handed over."""

    value: bytes | None
    key: bytes | None
    headers: Headers
    partition: int


class FakePublisher:
    """Stands for a `Publisher`: records that were handed over arrive, and are reported, with the next flush.

    Each third call finds no room, and values larger than `limit` are refused.
    """

    def __init__(self, topic: str, limit: int = 1000) -> None:
        self.partitions = 4
        self.refusal: str | None = None
        self.arrived: list[Sent] = []
        self.waiting: list[tuple[Sent, Callable[[str | None], None]]] = []
        self._topic = topic
        self._limit = limit
        self._calls = 0

    def publish(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        told: Callable[[str | None], None],
        partition: int,
    ) -> bool:
        self._calls += 1
        if self._calls % 3:
            self.waiting.append((Sent(value, key, headers, partition), told))
        return bool(self._calls % 3)

    def poll(self, timeout: float) -> None: ...

    def flush(self, timeout: float) -> int:
        while self.waiting:
            sent, told = self.waiting.pop(0)
            if len(sent.value or b"") > self._limit:
                self.refusal = "too large"
                told(None)
            else:
                self.arrived.append(sent)
                told(f"{self._topic}/0/{len(self.arrived)}")
        return 0
