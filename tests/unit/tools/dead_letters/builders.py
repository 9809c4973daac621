"""Dead letters as a worker writes them, with defaults."""

from __future__ import annotations

from collections.abc import Sequence

from worker.codecs.dead_letters import DeadLetters, Letter, read
from worker.core.failures import Code
from worker.core.records import Partition, Record, Rejection, Reply

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
    said = DeadLetters("dead", "group", limit).letter(Rejection(request, code, message, Reply("application/json")))
    return Record(partition, offset, said.key, said.value, said.headers, time_ms)


def letter(
    offset: int = 0,
    *,
    code: Code = Code.INVALID_ARGUMENT,
    request_topic: str = "requests",
    value: bytes | None = b"{}",
    headers: Sequence[tuple[str, bytes | None]] = (),
    time_ms: int | None = 1000,
) -> Letter:
    """The same, read."""
    return read(
        dead_record(offset, code=code, request_topic=request_topic, value=value, headers=headers, time_ms=time_ms)
    )
