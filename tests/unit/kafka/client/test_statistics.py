"""The reading of librdkafka 2.16's statistics; the texts are shortened ones of a real client."""

from __future__ import annotations

import json

import pytest

from worker.core.records import Partition, Standing
from worker.core.stalls import Reach
from worker.kafka.client.statistics import read_consumer, unparsed_at

UNKNOWN = -1001


def partition(**said: int | str) -> dict[str, int | str]:
    read: dict[str, int | str] = {
        "ls_offset": 100,
        "committed_offset": 90,
        "app_offset": 95,
        "next_offset": 99,
        "hi_offset": 120,
        "fetchq_cnt": 0,
        "broker": 1,
        "fetch_state": "active",
    }
    return {**read, **said}


def consumer(*partitions: dict[str, int | str]) -> str:
    numbered = {str(number): told for number, told in enumerate(partitions)}
    nameless = partition(ls_offset=UNKNOWN, fetch_state="none")
    return json.dumps(
        {
            "brokers": {
                "a:9092/1": {"nodeid": 1, "state": "UP", "source": "learned", "rx": 7, "rxpartial": 2},
                "b:9092/2": {"nodeid": 2, "state": "INIT", "source": "learned", "rx": 0, "rxpartial": 1},
                "GroupCoordinator": {"nodeid": 1, "state": "UP", "source": "logical", "rx": 9, "rxpartial": 0},
            },
            "topics": {"requests": {"topic": "requests", "partitions": {**numbered, "-1": nameless}}},
            "cgrp": {"state": "up", "join_state": "steady"},
        }
    )


@pytest.mark.parametrize(
    ("said", "next_offset"),
    [
        ({}, 90),
        ({"committed_offset": UNKNOWN}, 95),
        ({"committed_offset": UNKNOWN, "app_offset": UNKNOWN}, 99),
        ({"committed_offset": UNKNOWN, "app_offset": UNKNOWN, "next_offset": UNKNOWN}, 100),
    ],
)
def test_a_partition_stands_where_it_is_committed(said: dict[str, int], next_offset: int) -> None:
    """Before the first commit, it stands at the first record that the client has not given us."""
    assert read_consumer(consumer(partition(**said))).standings == {
        Partition("requests", 0): Standing(next_offset, 100)
    }


@pytest.mark.parametrize("said", [{"fetch_state": "stopped"}, {"fetch_state": "offset-query"}, {"ls_offset": UNKNOWN}])
def test_what_is_not_read_stands_nowhere(said: dict[str, int | str]) -> None:
    """A partition that moved away stays in the statistics with its old offsets."""
    seen = read_consumer(consumer(partition(), partition(**said)))

    assert seen.standings == {Partition("requests", 0): Standing(90, 100)}


def test_connections_and_brokers_are_counted() -> None:
    """The coordinator has its own connection, and is one of the brokers. The first statistics know none."""
    seen = read_consumer(consumer())

    assert (seen.connections, seen.brokers, seen.coordinator) == (2, 2, "up")
    assert read_consumer("{}") == ("", 0, {}, 0, {}, 0.0)


@pytest.mark.parametrize(("broker", "answers"), [(1, 7), (2, 0), (-1, 0)])
def test_a_partition_is_read_up_to_what_comes_next(broker: int, answers: int) -> None:
    """The answers of its own broker count; a coordinator's are on another connection."""
    seen = read_consumer(consumer(partition(broker=broker, fetchq_cnt=3)))

    assert seen.reaches == {Partition("requests", 0): Reach(99, 100, 120, is_fetched=False, answers=answers)}
    assert read_consumer(consumer(partition(next_offset=UNKNOWN))).reaches == {}, "it is looked up where it begins"


@pytest.mark.parametrize(("number", "position", "unparsed"), [(0, 99, 3), (0, 98, None), (1, 99, None), (2, 99, None)])
def test_batches_that_could_not_be_parsed_count_at_one_position(
    number: int, position: int, unparsed: int | None
) -> None:
    """At another position, or where nothing is fetched, the count belongs to something else."""
    text = consumer(partition(), partition(fetch_state="stopped"))

    assert unparsed_at(text, Partition("requests", number), position) == unparsed


def test_a_client_is_throttled_by_the_broker_that_holds_it_up_longest() -> None:
    """Each broker counts alone, in milliseconds since the last text; the coordinator's entry may have no count."""
    brokers: dict[str, dict[str, object]] = {
        "a": {"throttle": {"sum": 849, "cnt": 21}},
        "b": {"throttle": {"sum": 100}},
        "GroupCoordinator": {},
    }

    for broker in brokers.values():
        broker["state"] = "UP"

    assert read_consumer(json.dumps({"brokers": brokers})).throttled == 0.849
