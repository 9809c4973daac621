"""The transactional producer on a real Kafka: what no fake can show."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

import pytest
from confluent_kafka import TopicPartition

from tests.contract.test_sink import stretches
from tests.contract.test_transactions import KafkaStage, ending, fill, member_of
from tests.kafka.broker import FORGETFUL, FORGOTTEN_AFTER, JvmBroker
from tests.kafka.cluster import Cluster, Reader, Sent, fresh
from tests.kafka.dying_transaction import opened
from tests.kafka.fixtures import NewBroker
from worker.core.failures import BadConfiguration, KafkaFatal
from worker.core.records import Ending, Message
from worker.kafka.client.membership import TransactionalId

PATIENCE = 30.0
SHORT_MS = 1_000  # librdkafka's least timeout; the test broker looks for late transactions twice a second


class NewStage(Protocol):
    """The function that `new_stage` yields: call it to make a stage."""

    def __call__(
        self,
        cluster: Cluster | None = None,
        *,
        name: TransactionalId | None = None,
        timeout_ms: int = 10_000,
        topic_config: Mapping[str, str] | None = None,
        config: dict[str, str] | None = None,
    ) -> KafkaStage: ...


@pytest.fixture
def new_stage(request: pytest.FixtureRequest) -> Iterator[NewStage]:
    """Makes stages, on the shared broker unless another is named; closes them in the end."""
    with ExitStack() as stages:

        def make(cluster: Cluster | None = None, **options: object) -> KafkaStage:
            stage = KafkaStage(cluster or request.getfixturevalue("kafka"), **options)  # type: ignore[arg-type]  # as in NewStage
            stages.callback(stage.close)
            return stage

        yield make


def stable() -> TransactionalId:
    """A transactional id that another process may have too."""
    text = fresh("id")
    return TransactionalId(text, text, is_unique=False, is_stable=True)


def commit(stage: KafkaStage, value: bytes, next_offset: int) -> Ending:
    """Commit one answer in a transaction of its own."""
    return commit_all(stage, [value], next_offset)


def commit_all(stage: KafkaStage, values: list[bytes], next_offset: int) -> Ending:
    """Commit these answers in one transaction; none, where requests are passed over."""
    fill(stage, values)
    stage.transactions.commit({stage.requests: next_offset})
    return ending(stage)


def commit_at_last(stage: KafkaStage, value: bytes, next_offset: int) -> None:
    """Commit one answer where transactions are short: begin again, as the loop does, if the machine is too slow."""
    deadline = time.monotonic() + PATIENCE
    while (ended := commit(stage, value, next_offset)).failure is not None and stage.committed() != next_offset:
        assert time.monotonic() < deadline, ended


def refused(stage: KafkaStage) -> None:
    """Begin a transaction with an answer that the client refuses: its partition does not exist."""
    (stretch,) = stretches(1)
    stage.transactions.begin()
    stage.transactions.send([Message(stage.topic, b"k", b"v", [], 0, 99)], stretch)


def arrive(stage: KafkaStage) -> None:
    """Wait until the broker has all that was sent."""
    deadline = time.monotonic() + PATIENCE
    while stage.producer.undelivered:
        assert time.monotonic() < deadline
        stage.transactions.serve(0.01)


def threads() -> int:
    """The number of this process's threads, librdkafka's included."""
    return sum(1 for _ in Path("/proc/self/task").iterdir())


@contextmanager
def frozen(broker: JvmBroker) -> Iterator[None]:
    """Meanwhile the broker does not answer."""
    broker.suspend()
    try:
        yield
    finally:
        broker.heal()


# Other producers with this id


def test_who_is_shut_out_by_another_replica_stops(new_stage: NewStage) -> None:
    """Two replicas with one id would shut each other out for ever: the older one ends and names the setting."""
    name = stable()
    old = new_stage(name=name)
    assert commit(old, b"old", 1).failure is None
    fill(old, [b"never"])
    new_stage(name=name)

    old.transactions.commit({old.requests: 2})
    with pytest.raises(KafkaFatal) as stopped:
        ending(old)

    assert f"another process uses the transactional id {name.text}" in str(stopped.value)
    assert "WORKER_DELIVERY__TRANSACTIONAL_ID" in str(stopped.value)
    assert old.values(1) == [b"old"]
    assert old.committed() == 1
    with pytest.raises(KafkaFatal):
        old.transactions.ended(0.0)  # and again, to whoever asks


def test_a_name_that_is_nobody_elses_is_taken_again(new_stage: NewStage) -> None:
    """Only the broker can have shut out a random name: the worker goes on with another producer."""
    name = TransactionalId(fresh("random"), "random-", is_unique=True, is_stable=False)
    stage = new_stage(name=name)
    fill(stage, [b"never"])
    arrive(stage)
    new_stage(name=name)  # stands for the broker

    stage.transactions.commit({stage.requests: 1})
    failure = ending(stage).failure

    assert failure is not None
    assert "fenced" in failure
    assert commit(stage, b"again", 1).failure is None
    assert stage.values(1) == [b"again"]


# Time


def test_a_transaction_that_was_open_for_too_long_is_read_again(new_stage: NewStage) -> None:
    """The broker has taken it back while the process stood still; the worker goes on, though the id is not random."""
    stage = new_stage(name=stable(), timeout_ms=SHORT_MS)
    with Reader(stage.cluster, stage.topic) as reader:
        fill(stage, [b"late"])
        arrive(stage)
        stage.cluster.produce(stage.topic, [Sent(b"k", b"behind")])
        reader.read_until(1)  # records behind it may be read: it was taken back

    stage.transactions.commit({stage.requests: 1})
    failure = ending(stage).failure

    assert failure is not None
    assert stage.committed() is None
    commit_at_last(stage, b"in time", 1)
    assert stage.values(2) == [b"behind", b"in time"]
    assert stage.committed() == 1


def test_a_predecessor_that_was_killed_holds_readers_up_no_longer_than_its_successor_needs(
    kafka: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a stable id the dead process's transaction is taken back at once, not by its timeout."""
    name, topic = fresh("id"), kafka.create_topic("answers")
    command = [sys.executable, "-m", "tests.kafka.dying_transaction", kafka.bootstrap_servers, topic, name, "60000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as dying, Reader(kafka, topic) as reader:
        assert dying.stdout is not None
        assert dying.stdout.readline() == "open\n"
        dying.kill()
        kafka.produce(topic, [Sent(b"k", b"behind")])
        reader.read(1.0)
        assert not reader.records, "held up"

        began = time.monotonic()
        heir = opened(kafka.bootstrap_servers, topic, name, 60_000)
        reader.read_until(1)
        seconds = time.monotonic() - began

    heir.close(PATIENCE)
    assert [record.value for record in reader.records] == [b"behind"]
    assert seconds < PATIENCE  # half of the timeout
    with capsys.disabled():
        sys.stdout.write(f"\nreaders go on {seconds:.2f} s after a killed replica is back\n")


@pytest.mark.parametrize("values", [[], pytest.param([b"v"], marks=pytest.mark.slow)])
def test_a_producer_that_the_broker_has_forgotten_costs_one_transaction(
    new_broker: NewBroker, new_stage: NewStage, values: list[bytes]
) -> None:
    """The broker forgets it after `transactional.id.expiration.ms` of silence, also with no answer to send."""
    cluster = Cluster(new_broker(FORGETFUL).bootstrap_servers)
    cluster.wait_until_coordinating()
    stage = new_stage(cluster)
    deadline = time.monotonic() + PATIENCE

    while commit_all(stage, values, 1).failure is None:
        assert time.monotonic() < deadline, "the broker forgets nothing"
        time.sleep(FORGOTTEN_AFTER)

    assert commit_all(stage, values, 2).failure is None
    assert stage.committed() == 2


# Refused by the broker


def test_an_answer_that_the_broker_refuses_fails_its_transaction(new_stage: NewStage) -> None:
    """All of it is taken back, and the reason names the topic; answers sent behind it are dropped.

    The size was the reason, which another producer has to know.
    """
    stage = new_stage(topic_config={"max.message.bytes": "1000"})
    fill(stage, [b"fine", b"x" * 2000])
    arrive(stage)
    stage.transactions.send([Message(stage.topic, b"k", b"dropped", [], 0)], stretches(1)[0])

    stage.transactions.commit({stage.requests: 2})
    with pytest.raises(KafkaFatal, match=f"the broker refused a record for topic {stage.topic} as too large"):
        ending(stage)

    stage.cluster.produce(stage.topic, [Sent(b"k", b"behind")])
    assert stage.values(1) == [b"behind"]


def test_a_topic_that_is_gone_is_named_by_each_transaction_that_fails_for_it(new_stage: NewStage) -> None:
    """The client says so after half a minute, but a producer whose transaction fails is replaced earlier."""
    stage = new_stage(timeout_ms=SHORT_MS)
    commit_at_last(stage, b"v", 1)
    stage.cluster.delete_topic(stage.topic)
    stage.cluster.wait_until_gone(stage.topic)

    failures = [commit(stage, b"late", 2).failure for _ in range(2)]

    assert all(f"topic {stage.topic} was deleted" in (failure or "") for failure in failures), failures


def test_a_producer_that_was_replaced_leaves_nothing_behind(new_stage: NewStage) -> None:
    """Its client ends at once: no thread waits for a garbage collection, which comes late or never."""
    stage = new_stage()
    assert commit(stage, b"v", 1).failure is None
    assert stage.values(1) == [b"v"]  # now every client has its threads, one for each connection
    gc.disable()
    try:
        before = threads()
        for _ in range(4):
            refused(stage)
            stage.transactions.commit({stage.requests: 2})
            assert ending(stage).failure is not None
        assert threads() <= before
    finally:
        gc.enable()


def test_who_has_left_the_group_commits_nothing(new_stage: NewStage) -> None:
    """The group refuses a zombie's offsets, and so its answers are aborted."""
    stage = new_stage()
    assert commit(stage, b"member", 1).failure is None
    left = stage.consumer.consumer_group_metadata()
    stage.consumer.close()
    heir = member_of(stage.kafka)

    fill(stage, [b"zombie"])
    stage.member = lambda: left
    stage.transactions.commit({stage.requests: 2})
    failure = ending(stage).failure

    assert failure is not None
    assert stage.values(1) == [b"member"]
    (at,) = heir.committed([TopicPartition(*stage.requests)], PATIENCE)
    assert at.offset == 1
    stage.member = heir.consumer_group_metadata
    assert commit(stage, b"heir", 2).failure is None
    heir.close()


def test_a_cluster_that_cannot_keep_transactions_is_told_at_start(new_broker: NewBroker) -> None:
    """One broker and a replication factor of three: the request never gets an answer."""
    cluster = Cluster(new_broker({"transaction.state.log.replication.factor": "3"}).bootstrap_servers)
    topic = cluster.create_topic()

    with pytest.raises(BadConfiguration, match=r"opens transactions for .* within 2 s: .*replication\.factor"):
        opened(cluster.bootstrap_servers, topic, fresh("id"), 10_000, ready_timeout=2.0)


# A broker that goes away


# In these tests the broker lives on, or ends in good order. A lone Kafka 4.3 that is killed may lose an abort. Its
# coordinator works again before the partitions have leaders, and skips partitions without one: "these partitions are
# likely deleted already and hence can be skipped" is in its log. They get no marker, and the next commit makes the
# aborted answers readable (measured, 4 of 7). No client can prevent it; three brokers can.


@pytest.mark.parametrize("moments", [(0, 2), pytest.param((1, 4), marks=pytest.mark.slow)])
def test_an_end_in_doubt_is_one_or_the_other(
    own_broker: JvmBroker, new_stage: NewStage, moments: tuple[int, ...]
) -> None:
    """The broker freezes during a commit: its answers are there exactly if its offset is."""
    stage = new_stage(Cluster(own_broker.bootstrap_servers), name=stable(), timeout_ms=SHORT_MS)
    seen: list[bytes] = []
    for milliseconds in moments:
        next_offset = len(seen) + 1
        fill(stage, [b"in doubt %d" % milliseconds])
        stage.transactions.commit({stage.requests: next_offset})
        time.sleep(milliseconds / 1000)
        with frozen(own_broker):
            time.sleep(2 * SHORT_MS / 1000)
        ended = ending(stage)

        is_committed = stage.committed() == next_offset
        assert is_committed or ended.failure is not None
        seen += [b"in doubt %d" % milliseconds] if is_committed else []
        commit_at_last(stage, b"after", len(seen) + 1)
        seen.append(b"after")

    assert stage.values(len(seen)) == seen
    assert stage.committed() == len(seen)


def test_a_broker_that_is_away_for_longer_than_a_transaction_is_waited_for(
    own_broker: JvmBroker, new_stage: NewStage
) -> None:
    """The transaction is lost, and the next one follows when the broker is back.

    The test does not read the lost one: a broker that restarts alone may lose the ends of transactions.
    """
    stage = new_stage(Cluster(own_broker.bootstrap_servers), name=stable(), timeout_ms=SHORT_MS)
    commit_at_last(stage, b"before", 1)
    fill(stage, [b"lost"])
    arrive(stage)

    own_broker.stop()
    stage.transactions.commit({stage.requests: 2})
    away_until = time.monotonic() + 3 * SHORT_MS / 1000
    while time.monotonic() < away_until:
        assert stage.transactions.ended(0.05) is None
    own_broker.start()
    ended = ending(stage)

    assert ended.failure is not None
    assert ended.seconds > 3 * SHORT_MS / 1000
    commit_at_last(stage, b"after", 2)
    assert stage.committed() == 2
