"""The source with a client that follows a script: events between two of its calls."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import pytest
from confluent_kafka import KafkaError, TopicPartition

from tests.fakes import Onlooker
from tests.unit.kafka.scripted import Incoming, P, Q, World, new_world
from worker.core.failures import KafkaFatal
from worker.core.records import UNREADABLE_HEADERS, CommitResult
from worker.kafka.client.membership import Membership
from worker.kafka.client.stranded import LOST_AFTER

UP = json.dumps({"brokers": {"a:9092/1": {"state": "UP"}}})
NOT_YET = {"app_offset": -1001, "next_offset": -1001}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A source that holds two partitions."""
    here = new_world(monkeypatch)
    here.assign(P, Q)
    return here


def test_what_is_taken_away_in_a_call_is_not_among_its_records(world: World) -> None:
    """Its next owner answers it."""

    def fetch() -> list[Incoming]:
        world.revoke(P)
        return [Incoming(P, 5), Incoming(Q, 7)]

    world.client.script.append(fetch)

    assert world.polled_twice() == [(Q, 7)]


def test_what_came_before_a_partition_left_is_not_of_the_one_that_came_back(world: World) -> None:
    """Both happen in one call: the partition begins where the group stands, and earlier records are read again."""

    def fetch() -> list[Incoming]:
        world.revoke(P)
        world.assign(P)
        return [Incoming(P, 5), Incoming(Q, 7)]

    world.client.script += [fetch, lambda: [Incoming(P, 3)]]

    assert world.polled_twice() + world.polled() == [(Q, 7), (P, 3)]


def test_a_stop_in_a_revoke_is_raised_as_it_is(world: World) -> None:
    """The exit code and the message are the failure's own."""
    world.assignments.failure = KafkaFatal("the sink is broken")

    def fetch() -> list[Incoming]:
        world.revoke(P)
        return []

    world.client.script.append(fetch)

    with pytest.raises(KafkaFatal, match=r"^the sink is broken$"):
        world.polled()


def test_what_comes_behind_an_unreadable_record_comes_again(world: World) -> None:
    """The client seeks back to it, so later records of the partition would be read twice."""
    damaged = KafkaError(KafkaError._BAD_COMPRESSION, "damaged")
    world.client.script.append(lambda: [Incoming(P, 4), Incoming(P, 5, damaged), Incoming(P, 6), Incoming(Q, 7)])

    assert sorted(world.polled_twice()) == [(P, 4), (Q, 7)]
    assert world.client.seeks == [(P.number, 5)]


def test_each_commit_has_its_result(world: World) -> None:
    """The result says for each partition if Kafka took the offset, or why not."""
    refused = SimpleNamespace(
        topic="r", partition=1, offset=8, metadata=None, error=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    )
    world.source.commit({P: 4, Q: 8})

    world.commit_heard(TopicPartition("r", 0, 4), refused)

    assert [(at.partition, at.offset) for at in world.client.commits[0]] == [(0, 4), (1, 8)]
    (result,) = world.source.commit_results()
    assert result.committed == {P: 4}
    assert list(result.failed) == [Q]
    assert world.source.commit_results() == []


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError._WAIT_COORD,
        KafkaError._TIMED_OUT,
    ],
)
def test_a_commit_that_fails_for_now_stops_nothing(world: World, code: int) -> None:
    """The group moves on; the next commit carries what is still ours."""
    world.commit_heard(TopicPartition("r", 0, 4), error=KafkaError(code))

    (result,) = world.source.commit_results()

    assert result == CommitResult({}, {P: KafkaError(code).str()})
    assert world.polled() == []


@pytest.mark.parametrize("code", [KafkaError.FENCED_INSTANCE_ID, KafkaError.GROUP_AUTHORIZATION_FAILED])
def test_a_commit_that_is_refused_for_good_stops_the_worker(world: World, code: int) -> None:
    """No answer could ever be committed."""
    world.commit_heard(TopicPartition("r", 0, 4), error=KafkaError(code))

    with pytest.raises(KafkaFatal, match="Kafka refuses this consumer"):
        world.polled()


@pytest.mark.parametrize(
    ("said", "cure"),
    [
        (
            "Fatal error: Broker: Group authorization failed: ConsumerGroupHeartbeat fatal error",
            "grant this client READ",
        ),
        ("Fatal error: Broker: Unsupported version", "start again"),
    ],
)
def test_what_shuts_a_member_out_is_told_with_its_cure(
    world: World, said: str, cure: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Under KIP-848 the client calls all of it fatal, and quotes the broker. The log has it once."""
    world.client.script.append(lambda: [Incoming(P, 5)])
    world.polled()  # now it is in the group

    def fetch() -> list[Incoming]:
        world.client.config["error_cb"](KafkaError(KafkaError._FATAL, said, True))
        return []

    world.client.script.append(fetch)

    with pytest.raises(KafkaFatal, match=f"Kafka refuses this consumer: {said}; {cure}"):
        world.polled()
    world.source.close()

    assert caplog.messages == []


def test_a_login_that_the_producer_finds_refused_ends_the_worker(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The consumer may have no connection that could be refused, and no reason to open one."""
    certificate = tmp_path / "own.pem"
    certificate.write_text("old")
    world = new_world(monkeypatch, ssl_certificate_location=certificate)
    certificate.write_text("new")

    world.source.hear_of_login(KafkaError(KafkaError._SSL, "certificate expired"))

    with pytest.raises(KafkaFatal, match=f"{certificate} changed since this worker started"):
        world.polled()


def test_a_consumer_that_has_lost_its_brokers_ends_the_worker(world: World) -> None:
    """The brokers answer any other client, and a new start makes one."""

    def fetch() -> list[Incoming]:
        world.client.config["stats_cb"]("{}")
        return []

    world.client.script.append(fetch)
    world.polled()
    world.clock.now += LOST_AFTER
    world.client.script.append(fetch)

    with pytest.raises(KafkaFatal, match="known no broker for 5 s"):
        world.polled()


def test_a_broker_that_is_away_is_no_failure(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The client connects again by itself; the log says that it tries."""
    away = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")
    world.client.script.append(lambda: [Incoming(P, 0, away)])

    assert world.polled() == []
    assert caplog.messages == ["_ALL_BROKERS_DOWN: 1/1 brokers are down"]


def test_what_others_committed_meanwhile_is_no_lag_of_a_partition_that_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client remembers only its own last commit. Our later commits count again."""
    world = new_world(monkeypatch, onlooker := Onlooker())
    lags = []

    for group, committed in ((10, 10), (90, 10), (90, 95)):
        world.client.group = {P: (group, "")}
        world.assign(P)
        found = {"fetch_state": "active", "ls_offset": 100, "committed_offset": committed}
        world.client.config["stats_cb"](json.dumps({"topics": {"r": {"partitions": {"0": found | NOT_YET}}}}))
        lags.append(onlooker.standings[P].end - onlooker.standings[P].next_offset)
        world.revoke(P)

    assert lags == [90, 10, 5]
    assert onlooker.connections == 0


def test_a_record_whose_headers_cannot_be_read_comes_without_them(world: World) -> None:
    """A header's name is bytes to Kafka, and may be no UTF-8. Other records keep their headers."""
    world.brings((P, 4))
    coming = [Incoming(P, at, looks=[] if at in (6, 7, 9) else None) for at in range(5, 10)]
    world.client.script.append(lambda: list(coming))

    records = world.source.poll(10, 0.0)

    assert [record.offset for record in records] == [5, 6, 7, 8, 9]
    assert [record.headers == UNREADABLE_HEADERS for record in records] == [False, True, True, False, True]
    assert {record.value for record in records} == {b"v"}


def test_headers_are_looked_at_once_where_an_error_comes_beside_them(world: World) -> None:
    """A second look at unreadable headers ends the process."""
    world.brings((P, 4))
    odd, wrong = Incoming(P, 5, looks=[]), Incoming(Q, 0, KafkaError(KafkaError._TRANSPORT))
    world.client.script.append(lambda: [odd, wrong, Incoming(P, 6)])

    records = world.source.poll(10, 0.0)

    assert [(record.offset, record.headers == UNREADABLE_HEADERS) for record in records] == [(5, True), (6, False)]


def test_a_source_that_is_left_from_another_thread_tells_and_gives_nothing_more(world: World) -> None:
    """The worker hangs: its group gets the partitions, and it commits nothing past records it may drop meanwhile."""
    world.client.position_of = {0: 7}
    world.will_revoke(*world.client.held)

    world.source.leave()
    world.source.commit({P: 7})

    assert world.client.left == 1
    assert world.assignments.gone == []
    late = P._replace(number=9)
    world.assign(late)
    assert not world.source._gates.holds(late)
    assert world.source.positions() == {}
    assert world.client.commits == []
    world.client.script.append(lambda: [Incoming(P, 7)])
    assert world.polled() == []
    world.source.close()
    assert not world.client.is_closed


def test_a_source_that_closes_is_not_left_beside_that(world: World) -> None:
    """The client would be gone in the middle of a call."""
    world.source.close()

    world.source.leave()

    assert world.client.left == 0


@pytest.mark.parametrize("holds", [False, True])
@pytest.mark.parametrize(("protocol", "instance"), [("classic", None), ("classic", "worker-0"), ("consumer", None)])
def test_only_a_classic_member_without_partitions_says_that_it_leaves(
    monkeypatch: pytest.MonkeyPatch, protocol: Literal["classic", "consumer"], instance: str | None, *, holds: bool
) -> None:
    """The client leaves for the others; a static member says nothing, since it comes back."""
    world = new_world(monkeypatch, group_instance_id=instance)
    world.source.membership = Membership(protocol, "test")
    if holds:
        world.assign(P)
    said: list[str] = []
    monkeypatch.setattr(world.client, "unsubscribe", lambda: said.append("leaves"), raising=False)

    world.source.close()

    assert world.client.is_closed
    assert bool(said) == (protocol == "classic" and instance is None and not holds)


@pytest.mark.parametrize(("protocol", "times"), [("classic", [1, 2, 2, 2]), ("consumer", [0, 0, 0, 0])])
def test_a_classic_member_joins_anew_when_a_topic_it_reads_is_gone_and_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch, protocol: Literal["classic", "consumer"], times: list[int]
) -> None:
    """Otherwise the old topic's offset would be committed in the new one. A client that noticed first need not."""
    world = new_world(monkeypatch, protocol=protocol)
    world.assign(P)
    left = []

    for deleted, held in (({"r"}, {P}), (set(), set()), ({"r"}, set()), (set(), {P})):
        world.client.deleted, world.client.held = deleted, held
        world.client.config["error_cb"](KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        for _ in range(6):
            world.clock.now += 1
            world.client.config["stats_cb"](UP)
        world.polled()
        left.append(world.client.left)

    assert left == times
