"""Where a batch ends that cannot be unpacked."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.unit.kafka.client.test_config import settings
from worker.core.records import Partition
from worker.kafka.client.config import consumer_config
from worker.kafka.client.membership import Membership
from worker.kafka.consumer import batch_end
from worker.kafka.consumer.batch_end import MOST_UNPARSED, BatchQuestion, Search, _Unparsed, find_end, looking

P = Partition("requests", 0)
DAMAGED, UNKNOWN_CODEC = KafkaError(KafkaError._BAD_COMPRESSION), KafkaError(KafkaError._NOT_IMPLEMENTED)
EOF, GONE = KafkaError(KafkaError._PARTITION_EOF), KafkaError(KafkaError._AUTO_OFFSET_RESET)


@pytest.mark.parametrize(
    ("inside", "end", "last"),
    [
        (10, 20_030, 20_009),
        (10, 20_010, 20_009),  # the log ends with it
        (5_000, 20_030, 20_009),  # from its middle
        (20_009, 20_030, 20_009),  # from its last
        (20_009, 20_010, 20_009),
        (20_009, 7, 20_009),  # the end is of another log
        (10, 2**62, 20_009),
        (10, 2**62, 2**31),
        (10, 30, 10),
        (10, 30, 11),
        (10, 30, 12),
    ],
)
def test_a_search_ends_at_the_last_offset_that_is_inside(inside: int, end: int, last: int) -> None:
    """Nothing at the end of the log is looked at, and each look takes a millisecond: there are few."""
    search = Search(inside, end)
    looks = 0

    while (offset := search.next) is not None:
        assert inside < offset < end
        search.look(is_inside=offset <= last)
        looks += 1

    assert search.inside == last
    assert looks <= 2 * (last - inside).bit_length() + 1


def test_what_is_known_halfway_is_never_too_far() -> None:
    """A search that breaks off gives up records of the batch alone."""
    search = Search(10, 1000)

    while (offset := search.next) is not None:
        search.look(is_inside=offset <= 500)
        assert 10 <= search.inside <= 500


class Log:
    """A partition as a client sees it: batches from a first offset to a last one, and why they cannot be read."""

    def __init__(self, end: int, *batches: tuple[int, int, KafkaError | None], begin: int = 0) -> None:
        self.begin, self.end, self.batches = begin, end, batches
        self.at: int | None = None
        self.looks = 0
        self.is_silent_from = end
        self.is_closed = False
        self.breaks: Exception | None = None

    def get_watermark_offsets(self, _: TopicPartition, timeout: float) -> tuple[int, int]:
        assert timeout > 0
        if self.breaks is not None:
            raise self.breaks
        return self.begin, self.end

    def assign(self, positions: list[TopicPartition]) -> None:
        (place,) = positions
        self.at = place.offset
        self.looks += 1

    def poll(self, _: float) -> Any:
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


def found(log: Log, at: int, first: int | None = None) -> tuple[int, str]:
    answer = find_end(lambda _: cast("Consumer", log), BatchQuestion(P, at if first is None else first, at))
    assert log.is_closed
    return answer


@pytest.mark.parametrize(
    ("log", "last"),
    [
        (Log(200, (0, 9, None), (10, 99, DAMAGED), (100, 199, None)), 99),
        (Log(100, (10, 99, DAMAGED)), 99),
        (Log(150, (10, 99, DAMAGED), (100, 149, DAMAGED)), 99),  # two of them
        (Log(200, (10, 99, DAMAGED), (150, 199, None)), 99),  # a gap that compaction left
        (Log(200, (10, 99, DAMAGED)), 99),  # markers alone
        (Log(200, (10, 99, UNKNOWN_CODEC), (100, 199, DAMAGED)), 99),
        (Log(11, (10, 10, DAMAGED)), 10),
        (Log(200, (10, 99, None)), 10),  # it can be read by now: what was given up is
        (Log(200, (150, 199, None), begin=150), 10),  # retention was faster
        (Log(5), 10),  # of another log
    ],
)
def test_the_end_of_a_batch_is_found_beside_whatever_lies_behind_it(log: Log, last: int) -> None:
    """Records, a batch that cannot be read either, a gap, markers, or nothing yet."""
    assert found(log, 10) == (last, "")


def test_the_end_of_a_batch_is_found_from_its_middle() -> None:
    """It is named by its first offset all the same."""
    assert found(Log(200, (10, 99, DAMAGED), (100, 199, None)), 60, first=10) == (99, "")


def test_a_broker_that_falls_silent_leaves_what_is_known() -> None:
    """The rest of the batch is found the next time."""
    log = Log(200, (10, 99, DAMAGED), (100, 199, None))
    log.is_silent_from = 50

    last, trouble = found(log, 10)

    assert 10 < last < 50
    assert "does not show offset" in trouble


@pytest.mark.parametrize("breaks", [KafkaException(KafkaError(KafkaError._TIMED_OUT)), RuntimeError("closed")])
def test_a_broker_that_is_away_leaves_the_one_record(breaks: Exception) -> None:
    """That one is certain."""
    log = Log(200, (10, 99, DAMAGED))
    log.breaks = breaks

    last, trouble = found(log, 10)

    assert last == 10
    assert trouble


def test_an_error_that_says_nothing_of_the_batch_ends_the_search() -> None:
    """It is not taken for a place behind the batch, nor asked about again and again."""
    log = Log(200, (10, 40, DAMAGED), (41, 199, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))

    last, trouble = found(log, 10)

    assert 10 < last <= 40
    assert trouble


def test_a_client_that_cannot_be_made_leaves_the_one_record() -> None:
    """And does not end the thread without a word."""

    def refuse(_: object) -> Consumer:
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG))

    assert find_end(refuse, BatchQuestion(P, 10, 12))[0] == 12
    assert find_end(refuse, BatchQuestion(P, None, 12))[0] == 11


class Spoiled(Log):
    """Of what cannot be parsed the client says nothing; its statistics count how often it was fetched."""

    def __init__(self, end: int, *batches: tuple[int, int, KafkaError | None], spoiled: Collection[int]) -> None:
        super().__init__(end, *batches)
        self.spoiled = spoiled
        self.unparsed = 0
        self.callbacks: Mapping[str, Any] = {}
        self.now = 0.0

    def __call__(self, callbacks: Mapping[str, Any]) -> Consumer:
        self.callbacks = callbacks
        return cast("Consumer", self)

    def monotonic(self) -> float:
        return self.now

    def poll(self, timeout: float) -> Any:
        self.now += timeout
        if self.at not in self.spoiled:
            return super().poll(timeout)
        self.unparsed += 1
        told = {"fetch_state": "active", "next_offset": self.at}
        topics = {P.topic: {"partitions": {str(P.number): told}}}
        self.callbacks["stats_cb"](json.dumps({"topics": topics, "brokers": {"b": {"rxpartial": self.unparsed}}}))
        return None


@pytest.mark.parametrize(
    ("log", "last"),
    [
        (Spoiled(30, (0, 29, None), spoiled=range(13, 20)), 19),
        (Spoiled(20, spoiled=range(13, 20)), 19),  # the log ends with it
        (Spoiled(30, (0, 29, None), spoiled=[*range(13, 18), *range(20, 26)]), 17),  # a good one between two of them
        (Spoiled(30, (20, 29, DAMAGED), spoiled=range(13, 20)), 19),  # one that is told of behind it
        (Spoiled(30, (20, 29, None), spoiled=()), 12),  # it can be read: the client was only slow
        (Spoiled(13, spoiled=range(13, 20)), 12),  # of another log
    ],
)
def test_each_record_that_is_given_up_without_a_word_of_the_client_was_looked_at(
    monkeypatch: pytest.MonkeyPatch, log: Spoiled, last: int
) -> None:
    """One after the other: no good batch is stepped over, however short it is."""
    monkeypatch.setattr(batch_end, "time", log)

    assert find_end(log, BatchQuestion(P, None, 13)) == (last, "")
    assert log.looks <= last - 13 + 2
    assert log.is_closed


def test_a_long_batch_that_cannot_be_parsed_is_told_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its records take a minute for each thousand, and questions about other partitions wait behind it."""
    log = Spoiled(5000, spoiled=range(13, 4000))
    monkeypatch.setattr(batch_end, "time", log)

    assert find_end(log, BatchQuestion(P, None, 13)) == (12 + MOST_UNPARSED, "")


def test_a_broker_that_shows_nothing_has_nothing_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is away or slow: only a batch that was fetched, and could not be parsed, says that it is spoiled."""
    log = Spoiled(30, (0, 29, None), spoiled=())
    log.is_silent_from = 13
    monkeypatch.setattr(batch_end, "time", log)

    last, trouble = find_end(log, BatchQuestion(P, None, 13))

    assert last == 12
    assert trouble == "the broker does not show offset 13"


def test_an_error_that_says_nothing_of_the_records_gives_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a right that was taken away meanwhile."""
    log = Spoiled(30, (15, 29, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)), spoiled=[13, 14])
    monkeypatch.setattr(batch_end, "time", log)

    last, trouble = find_end(log, BatchQuestion(P, None, 13))

    assert last == 14
    assert trouble


def test_statistics_of_another_place_say_nothing() -> None:
    """The client tells for a moment how it was before it was sent here."""
    looks = _Unparsed(P, 13)
    told = {"topics": {P.topic: {"partitions": {"0": {"fetch_state": "active", "next_offset": 12}}}}}

    looks.hear(json.dumps({**told, "brokers": {"b": {"rxpartial": 99}}}))

    assert (looks.last, looks._times) == (12, 0)


@pytest.mark.parametrize(("most", "unpacked"), [("2000000", 2_000_000), ("384000000", 64 << 20)])
def test_who_looks_unpacks_no_more_than_who_reads(most: str, unpacked: int) -> None:
    """What the reader cannot unpack would be a good record to a client that can; and much is not needed."""
    reading = consumer_config(
        settings(config={"receive.message.max.bytes": most, "fetch.max.bytes": "1000000"}),
        Membership("consumer", "", None),
    )

    found = looking(reading)

    assert found["receive.message.max.bytes"] == unpacked
    assert found["fetch.max.bytes"] == 1_000
    assert found["isolation.level"] == "read_uncommitted"
