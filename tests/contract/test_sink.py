"""Every sink's promises, which the fake, the mock cluster and a real Kafka keep."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import pytest

from tests.chunks import record
from tests.fakes import Broker, Clock, FakeSink
from tests.kafka.cluster import Cluster, Reader, fresh
from worker.core.ordering.ledger import OffsetLedger, Stretch
from worker.core.records import Fields, Message
from worker.kafka.client.membership import Membership
from worker.kafka.cluster.topics import Topics
from worker.kafka.producer.sink import KafkaSink
from worker.ports import Sink
from worker.settings import KafkaSettings
from worker.tools.kafka.embedded import EmbeddedBroker

PATIENCE = 20.0


class Answer(NamedTuple):
    """One answer as a reader of the response topic sees it."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class Stage(Protocol):
    """A response topic of four partitions, and a sink that writes to it."""

    topic: str
    sink: Sink

    def answers(self, count: int) -> list[Answer]:
        """The first `count` answers; within a partition in their order."""


class FakeStage:
    """The fake keeps these promises, or the tests of the delivery prove nothing."""

    topic = "answers"

    def __init__(self) -> None:
        self._broker = Broker()
        self.sink: Sink = FakeSink(self._broker, Clock(), partitions=4)

    def answers(self, count: int) -> list[Answer]:
        assert len(self._broker.answers) == count
        return [Answer(m.key, m.value, m.headers) for m in self._broker.answers]


class KafkaStage:
    """A real producer."""

    def __init__(self, cluster: Cluster, topic: str, config: dict[str, str] | None = None) -> None:
        self.topic = topic
        self._cluster = cluster
        kafka = KafkaSettings(
            bootstrap_servers=cluster.bootstrap_servers,
            request_topics=("r",),
            response_topic=topic,
            group_id="g",
            config=config or {},
        )
        topics = Topics({topic: 4}, {topic: 1_000_000}, Membership("consumer", "test"))
        self.producer = KafkaSink(kafka, topics, logging.getLogger("librdkafka"))
        self.sink: Sink = self.producer

    def answers(self, count: int) -> list[Answer]:
        with Reader(self._cluster, self.topic) as reader:
            read = reader.read_until(count)
            reader.read(0.2)
            assert len(reader.records) == count
        return [Answer(r.key, r.value, r.headers) for r in read]


@pytest.fixture(params=["fake", "mock", "kafka"])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """One stage for each implementation."""
    if request.param == "fake":
        yield FakeStage()
        return
    if request.param == "mock":
        with EmbeddedBroker() as broker:
            topic = fresh("answers")
            broker.create_topic(topic)
            yield from _real(Cluster(broker.bootstrap_servers), topic)
        return
    cluster: Cluster = request.getfixturevalue("kafka")
    yield from _real(cluster, cluster.create_topic("answers", partitions=4))


def _real(cluster: Cluster, topic: str) -> Iterator[Stage]:
    stage = KafkaStage(cluster, topic)
    yield stage
    assert stage.producer.close(PATIENCE) == 0


def stretches(count: int, length: int = 1) -> list[Stretch]:
    """Stretches of taken records, whose answers are sent here."""
    if not count:
        return []
    records = [record(offset) for offset in range(count * length)]
    places = OffsetLedger().track(records, [1] * len(records), [10] * len(records), 0.0)
    return [Stretch(places, start, start + length) for start in range(0, len(records), length)]


def collect(sink: Sink, count: int) -> list[Stretch]:
    """The next `count` stretches that the sink reports."""
    reported: list[Stretch] = []
    deadline = time.monotonic() + PATIENCE
    while len(reported) < count:
        assert time.monotonic() < deadline, f"{len(reported)} of {count} reports"
        reported += sink.poll(0.05)
    return reported


def test_a_stretch_comes_back_once_and_then_its_answer_is_there(stage: Stage) -> None:
    """A report stands for a durable answer: none comes earlier, none twice."""
    taken = stretches(50)

    for n, stretch in enumerate(taken):
        headers = [("status", b"ok"), ("twice", b"1"), ("twice", None)]
        stage.sink.send([Message(stage.topic, b"key%d" % n, b"%d" % n, headers, 0)], stretch)
    reported = collect(stage.sink, 50)

    assert Counter(reported) == Counter(taken)
    assert not stage.sink.poll(0.05)
    answers = stage.answers(50)
    assert {(a.key, a.value) for a in answers} == {(b"key%d" % n, b"%d" % n) for n in range(50)}
    assert all(list(a.headers) == headers for a in answers)


def test_answers_with_one_key_keep_their_order(stage: Stage) -> None:
    """A key's answers are read in the order they were sent."""
    for n, stretch in enumerate(stretches(200)):
        stage.sink.send([Message(stage.topic, b"key%d" % (n % 5), b"%d" % n, [], 0)], stretch)
    collect(stage.sink, 200)

    answers = stage.answers(200)
    for number in range(5):
        values = [int(a.value or b"") for a in answers if a.key == b"key%d" % number]
        assert values == list(range(number, 200, 5))


def test_answers_without_a_key_keep_the_order_of_their_partition(stage: Stage) -> None:
    """One request partition's answers are read in the order sent, though the response topic has other partitions."""
    for n, stretch in enumerate(stretches(120)):
        stage.sink.send([Message(stage.topic, None, b"%d" % n, [], n % 6)], stretch)
    collect(stage.sink, 120)

    answers = stage.answers(120)
    for number in range(6):
        values = [int(a.value or b"") for a in answers if int(a.value or b"") % 6 == number]
        assert values == list(range(number, 120, 6))


def test_a_stretch_comes_back_once_all_its_messages_are_durable(stage: Stage) -> None:
    """All answers of neighbours are settled together, wherever they go; an error and its dead letter are two of them.

    The stretch comes back as it was sent, although records before and after it have the same places.
    """
    before, taken, _ = stretches(3, 299)
    letters: list[Fields] = [(stage.topic, b"k", value, [], 0, None) for value in (b"answer", b"dead letter")]
    answers: list[Fields] = [(stage.topic, b"key%d" % n, b"%d" % n, None, 0, None) for n in range(298)]

    stage.sink.send(letters, before)
    stage.sink.send([*answers[:150], *letters, *answers[150:]], taken)

    assert Counter(collect(stage.sink, 2)) == Counter([before, taken])
    assert not stage.sink.poll(0.05)
    assert len(stage.answers(302)) == 302


def test_a_stretch_without_messages_comes_back_at_once(stage: Stage) -> None:
    """Its records are skipped: nothing has to become durable. Answers that are on the way do not hold it up."""
    skipped, answered = stretches(2)
    stage.sink.send([Message(stage.topic, b"k", b"v", [], 0)], answered)

    stage.sink.send([], skipped)

    came = list(stage.sink.poll(0.0))
    assert came[0] == skipped
    assert [*came, *collect(stage.sink, 2 - len(came))] == [skipped, answered]
    assert not stage.sink.poll(0.05)


def test_an_answer_may_have_no_value(stage: Stage) -> None:
    """A dead letter of a record without a value has none either."""
    (stretch,) = stretches(1)

    stage.sink.send([Message(stage.topic, b"k", None, [], 0)], stretch)
    collect(stage.sink, 1)

    assert stage.answers(1)[0].value is None


def test_what_the_client_has_no_room_for_is_sent_all_the_same() -> None:
    """Its queue holds ten; nothing is dropped, nothing overtakes, and the stretch comes back when all are durable."""
    with EmbeddedBroker() as broker:
        topic = fresh("answers")
        broker.create_topic(topic)
        stage = KafkaStage(Cluster(broker.bootstrap_servers), topic, {"queue.buffering.max.messages": "10"})
        first, second = stretches(2)

        for stretch, numbers in ((first, range(40)), (second, range(40, 60))):
            stage.sink.send([Message(topic, b"k", b"%d" % n, [], 0) for n in numbers], stretch)
        assert len(stage.producer._overflow) == 50

        assert collect(stage.sink, 2) == [first, second]
        assert [answer.value for answer in stage.answers(60)] == [b"%d" % n for n in range(60)]
        assert stage.producer.close(PATIENCE) == 0
