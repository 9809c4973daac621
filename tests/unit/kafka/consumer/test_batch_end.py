"""The search for the end of records that cannot be read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.unit.kafka.client.test_config import settings
from tests.unit.kafka.scripted import statistics
from worker.core.records import Partition
from worker.kafka.client.config import consumer_config
from worker.kafka.client.membership import Membership
from worker.kafka.consumer import batch_end
from worker.kafka.consumer.batch_end import (
    LOOKS,
    MOST_UNPARSED,
    StallWatch,
    find_end,
    looking,
)

P = Partition("requests", 0)
DAMAGED, UNKNOWN_CODEC = KafkaError(KafkaError._BAD_COMPRESSION), KafkaError(KafkaError._NOT_IMPLEMENTED)
EOF, GONE = KafkaError(KafkaError._PARTITION_EOF), KafkaError(KafkaError._AUTO_OFFSET_RESET)
DENIED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)


class Log:
    """A partition as a client sees it: batches with first and last offset, and why they cannot be read."""

    def __init__(self, end: int, *batches: tuple[int, int, KafkaError | None], begin: int = 0) -> None:
        self.begin, self.end, self.batches = begin, end, batches
        self.at: int | None = None
        self.looks = 0
        self.is_silent_from = end
        self.is_closed = False
        self.breaks: Exception | None = None
        self.callbacks: Mapping[str, Any] = {}
        self.now = 0.0

    def __call__(self, callbacks: Mapping[str, Any]) -> Consumer:
        self.callbacks = callbacks
        return cast("Consumer", self)

    def monotonic(self) -> float:
        return self.now

    def get_watermark_offsets(self, _: TopicPartition, timeout: float) -> tuple[int, int]:
        assert timeout > 0
        if self.breaks is not None:
            raise self.breaks
        return self.begin, self.end

    def assign(self, positions: list[TopicPartition]) -> None:
        (place,) = positions
        self.at = place.offset
        self.looks += 1

    def poll(self, timeout: float) -> Any:
        self.now += timeout
        if self.at is None or self.at >= self.is_silent_from:
            return None
        if self.at < self.begin:
            return seen(GONE, self.at)
        for first, last, error in self.batches:
            if self.at <= last:
                return seen(error, max(first, self.at) if error is None else first)
        return seen(EOF, self.at)

    def close(self) -> None:
        self.is_closed = True


def seen(error: KafkaError | None, offset: int) -> SimpleNamespace:
    return SimpleNamespace(error=lambda: error, offset=lambda: offset)


def found(monkeypatch: pytest.MonkeyPatch, log: Log, first: int | None, at: int) -> tuple[int, str]:
    monkeypatch.setattr(batch_end, "time", log)
    answer = find_end(log, P, first, at)
    assert log.is_closed
    return answer


@pytest.mark.parametrize(
    ("log", "at", "last"),
    [
        (Log(200, (0, 9, None), (10, 99, DAMAGED), (100, 199, None)), 10, 99),
        (Log(200, (10, 99, DAMAGED), (100, 199, None)), 60, 99),  # starts in its middle
        (Log(100, (10, 99, DAMAGED)), 10, 99),
        (Log(150, (10, 99, DAMAGED), (100, 149, DAMAGED)), 10, 99),  # two damaged batches
        (Log(200, (10, 99, DAMAGED), (150, 199, None)), 10, 99),  # a gap left by compaction
        (Log(200, (10, 99, DAMAGED)), 10, 99),  # only markers follow
        (Log(200, (10, 99, UNKNOWN_CODEC), (100, 199, DAMAGED)), 10, 99),
        (Log(11, (10, 10, DAMAGED)), 10, 10),
        (Log(200, (10, 99, None)), 10, 9),  # the batch can be read by now
        (Log(200, (150, 199, None), begin=150), 10, 9),  # retention was faster
        (Log(5), 10, 9),  # another log
    ],
)
def test_the_end_of_a_batch_is_found_beside_whatever_lies_behind_it(
    monkeypatch: pytest.MonkeyPatch, log: Log, at: int, last: int
) -> None:
    """Records, another unreadable batch, a gap, markers or nothing may follow. Its first offset names it."""
    assert found(monkeypatch, log, 10, at) == (last, "")


@pytest.mark.parametrize(("at", "end"), [(10, 20_030), (10, 20_010), (5_000, 20_030), (20_009, 20_010)])
def test_a_search_takes_few_looks(monkeypatch: pytest.MonkeyPatch, at: int, end: int) -> None:
    """Each look takes a millisecond. The search does not look at the end of the log."""
    log = Log(end, (10, 20_009, DAMAGED), (20_010, 20_029, None))

    assert found(monkeypatch, log, 10, at) == (20_009, "")
    assert log.looks <= 2 * (20_009 - at).bit_length() + 2


def test_a_broker_that_falls_silent_leaves_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next search finds the rest of the batch."""
    log = Log(200, (10, 99, DAMAGED), (100, 199, None))
    log.is_silent_from = 50

    last, trouble = found(monkeypatch, log, 10, 10)

    assert 10 < last < 50
    assert "does not show offset" in trouble


@pytest.mark.parametrize("breaks", [KafkaException(KafkaError(KafkaError._TIMED_OUT)), RuntimeError("closed")])
def test_a_broker_that_is_away_gives_nothing_up(monkeypatch: pytest.MonkeyPatch, breaks: Exception) -> None:
    """No other client has seen that the record cannot be read."""
    log = Log(200, (10, 99, DAMAGED))
    log.breaks = breaks

    last, trouble = found(monkeypatch, log, 10, 10)

    assert last == 9
    assert trouble


class Spoiled(Log):
    """A log with batches that cannot be parsed: the client is silent, and its statistics count the fetches."""

    def __init__(self, end: int, *batches: tuple[int, int, KafkaError | None], spoiled: Collection[int]) -> None:
        super().__init__(end, *batches)
        self.spoiled = spoiled
        self.unparsed = 0

    def poll(self, timeout: float) -> Any:
        if self.at is None or self.at not in self.spoiled:
            return super().poll(timeout)
        self.now += timeout
        self.unparsed += 1
        self.callbacks["stats_cb"](statistics(P, self.at, unparsed=self.unparsed))
        return None


@pytest.mark.parametrize(
    ("log", "first", "last"),
    [
        (Spoiled(30, (0, 29, None), spoiled=range(13, 20)), None, 19),
        (Spoiled(20, spoiled=range(13, 20)), None, 19),  # the log ends there
        (Spoiled(30, (0, 29, None), spoiled=[*range(13, 18), *range(20, 26)]), None, 17),  # a good batch between two
        (Spoiled(30, (20, 29, DAMAGED), spoiled=range(13, 20)), None, 19),  # an unreadable batch follows
        (Spoiled(30, (20, 29, None), spoiled=()), None, 12),  # it can be read: the client was only slow
        (Spoiled(13, spoiled=range(13, 20)), None, 12),  # another log
        (Spoiled(5000, spoiled=range(13, 4000)), None, 12 + MOST_UNPARSED),  # a minute, while other questions wait
        (Spoiled(30, (13, 15, DAMAGED), spoiled=range(16, 20)), 13, 15),  # behind an unreadable batch
    ],
)
def test_each_record_that_is_given_up_without_a_word_of_the_client_was_looked_at(
    monkeypatch: pytest.MonkeyPatch, log: Spoiled, first: int | None, last: int
) -> None:
    """It looks at one after the other, so it skips no good batch, however short."""
    assert found(monkeypatch, log, first, 13) == (last, "")
    assert log.looks <= last - 13 + 3


@pytest.mark.parametrize(
    ("log", "last"),
    [
        (Spoiled(30, (0, 29, None), spoiled=()), 12),  # the broker is away or slow
        (Spoiled(30, (15, 29, DENIED), spoiled=[13, 14]), 14),  # a right was revoked meanwhile
    ],
)
def test_only_a_batch_that_was_fetched_and_not_parsed_is_given_up(
    monkeypatch: pytest.MonkeyPatch, log: Spoiled, last: int
) -> None:
    """Silence, or an error about something else, proves nothing about the records."""
    log.is_silent_from = 13 if last == 12 else 30

    known, trouble = found(monkeypatch, log, None, 13)

    assert known == last
    assert trouble


@pytest.mark.parametrize(("most", "unpacked"), [("2000000", 2_000_000), ("384000000", 64 << 20)])
def test_a_client_that_looks_unpacks_no_more_than_one_that_reads(most: str, unpacked: int) -> None:
    """If it unpacked more, records that the reader cannot unpack would look good; and more is not needed."""
    reading = consumer_config(settings(config={"receive.message.max.bytes": most}), Membership("consumer", ""))

    assert looking(reading)["receive.message.max.bytes"] == unpacked


def after(watch: StallWatch, seconds: int, stable: int = 100) -> list[tuple[Partition, int, int]]:
    """The damages found after a client has stood at offset 13 for so long."""
    found: list[tuple[Partition, int, int]] = []
    for second in range(seconds):
        watch.config["stats_cb"](statistics(P, 13, stable=stable, answers=second))
        found += watch.damages(watch.stalls())
    return found


def test_a_reader_outside_the_group_looks_where_it_has_stood_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier look would cost a client. It looks again if nothing is damaged, but not behind an open transaction."""
    log = Spoiled(30, (0, 29, None), spoiled=range(13, 20))
    monkeypatch.setattr(batch_end, "time", log)

    assert after(StallWatch(log, log.monotonic), LOOKS) == []
    assert after(StallWatch(log, log.monotonic), LOOKS + 1) == [(P, 13, 19)]
    log.spoiled, log.looks = (), 0
    assert after(StallWatch(log, log.monotonic), 2 * LOOKS + 1) == []
    assert log.looks == 2
    assert after(StallWatch(log, log.monotonic), 3 * LOOKS, stable=13) == []
    assert log.looks == 2
