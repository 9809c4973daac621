"""Finds the end of records that cannot be read, without reading them.

| records that cannot be | the client | the sign at one offset |
|---|---|---|
| unpacked | reports the batch by its first offset, from whichever of its offsets it reads | that error |
| parsed | reports nothing, and fetches the batch again and again (librdkafka#5581) | its statistics count the fetches |

The broker gives the whole batch for each of its offsets. So a look at one offset tells whether the batch that begins at
`first` reaches that far. The search goes ahead in growing steps, then halves: 30 looks for 20,000 records, 1 ms each.
No sign tells where an unparsable batch begins, so each of its offsets is looked at by itself, 60 ms each.

A record is given up only after a second client looked at it, so a broken network card or a slow broker gives nothing
up. An offset that a look does not show counts as beyond the batch, so the end found is at worst too early. The client
never joins the group, and has a thread of its own, because a look holds up all partitions of its broker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from worker.core.records import Partition
from worker.core.stalls import Stall, Stalls
from worker.kafka.client.config import Config
from worker.kafka.client.errors import UNREADABLE, words_of
from worker.kafka.client.statistics import read_consumer, unparsed_at

UNPARSED = "its batch is damaged on the broker's disk, and nothing from the damage on can be parsed"

LOOK_TIMEOUT = 5.0  # seconds for one look; a connection with TLS and a login to a broker far away takes one or two
_POLL_SLICE = 0.01  # seconds; statistics do not end a poll
# Failed fetches of one batch until it counts as unparsable: a single one may be a truncated answer.
_TIMES_UNPARSED = 3
# The most unparsable records that one search looks at: a minute, while other searches wait.
MOST_UNPARSED = 1_000
# Looks, one a second, after which a reader outside the group searches. Nothing else follows, so this may come early.
LOOKS = 5

# Larger than any batch as it travels. A look unpacks zstd up to this size, which takes 10 ms (measured 2026).
_MOST_UNPACKED = 64 * 1024 * 1024

_LOOKING: Config = {
    "statistics.interval.ms": 10,
    "fetch.error.backoff.ms": 20,  # between two fetches of a batch that cannot be parsed
    "log_level": 0,
    "enable.partition.eof": True,
    "isolation.level": "read_uncommitted",  # records that an open transaction holds back count as beyond, too
    "auto.offset.reset": "error",
    "fetch.wait.max.ms": 10,
    "queued.min.messages": 1,
    # One batch at a time: the first comes whatever its size.
    "message.max.bytes": 1_000,  # the client fetches no less than this
    "fetch.max.bytes": 1_000,
    "max.partition.fetch.bytes": 1_000,
}

# Errors that a look may bring: the batch cannot be read, or no record is there yet, or none is there any more.
_TELLING = UNREADABLE | {KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET}  # noqa: SLF001  # public, as all codes

# Makes a client that is configured by `looking`, with these callbacks.
NewLooker = Callable[[Mapping[str, Any]], Consumer]


def looking(reading: Config) -> Config:
    """Turn a reader's configuration into that of a looking client, which unpacks no more than the reader."""
    most = min(int(reading["receive.message.max.bytes"]), _MOST_UNPACKED)
    return {**reading, **_LOOKING, "receive.message.max.bytes": most}


def find_end(new_client: NewLooker, partition: Partition, first: int | None, at: int) -> tuple[int, str]:
    """Find the last offset from `at` on that is known to be in the batch, and why no more is known. Raises nothing.

    `first` None: the records cannot be parsed. The offset lies before `at` if none is known.
    """
    last, step, reports = at - 1, 1, list[str]()
    try:
        client = new_client({"stats_cb": reports.append})
        try:
            _, beyond = client.get_watermark_offsets(TopicPartition(*partition), LOOK_TIMEOUT)
            if first is None:
                beyond = min(beyond, at + MOST_UNPARSED)
            while (left := beyond - last - 1) > 0:
                offset = last + min(step, (left + 1) // 2)
                if _is_inside(client, reports, partition, offset, first):
                    last, step = offset, 1 if first is None else step * 2
                else:
                    beyond = offset
        finally:
            client.close()
    except Exception as error:  # noqa: BLE001  # the offsets found by then are still right
        return last, words_of(error)
    return last, ""


def _is_inside(client: Consumer, reports: list[str], partition: Partition, offset: int, first: int | None) -> bool:
    """True if this offset is in the batch. Raises `TimeoutError` or `KafkaException` if the look shows nothing."""
    # No seek: that takes 1 s nine times as often (measured 2026).
    client.assign([TopicPartition(*partition, offset)])
    until = time.monotonic() + LOOK_TIMEOUT
    counts: list[int] = []  # of batches that were not parsed, since the client is at the offset
    while (seen := client.poll(_POLL_SLICE)) is None:
        while reports:
            if (count := unparsed_at(reports.pop(0), partition, offset)) is not None:
                counts.append(count)
        if counts and counts[-1] - counts[0] >= _TIMES_UNPARSED:
            return first is None
        if time.monotonic() > until:
            raise TimeoutError(f"the broker does not show offset {offset}")
    error = seen.error()
    if error is not None and error.code() not in _TELLING:
        raise KafkaException(error)
    return error is not None and error.code() in UNREADABLE and seen.offset() == first


class StallWatch:
    """Tells a reader outside the group whether a stalled partition (`core/stalls.py`) can be parsed at all."""

    def __init__(self, new_looker: NewLooker, clock: Callable[[], float] = time.monotonic) -> None:
        self._new_looker = new_looker
        self._clock = clock
        self._stalls = Stalls(LOOKS)
        self._report: str | None = None

    @property
    def config(self) -> dict[str, Any]:
        """The settings that the watched client needs."""
        return {"statistics.interval.ms": 1_000, "stats_cb": self._hear}

    def _hear(self, report: str) -> None:
        """Only keep the report: a failure in a callback loses the records that the client was about to bring."""
        self._report = report

    def stalls(self) -> list[tuple[Partition, Stall]]:
        """The stalled partitions, once for each new report of the client."""
        report, self._report = self._report, None
        if report is None:
            return []
        return list(self._stalls.seen(read_consumer(report).reaches, self._clock()).items())

    def damages(self, stalls: list[tuple[Partition, Stall]]) -> Iterator[tuple[Partition, int, int]]:
        """Yield each damaged partition, with first and last offset. Takes seconds, more for thousands of records."""
        for partition, stall in stalls:
            if stall.is_due:
                last, _ = find_end(self._new_looker, partition, None, stall.offset)
                if last >= stall.offset:
                    yield partition, stall.offset, last
