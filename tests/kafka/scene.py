"""One test's stage: topics, a group, a model, replicas, and the auditor that watches them. Ends them all."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kafka.auditor import ANSWER_WITHIN, Auditor, Commits
from tests.kafka.checker import RAW, Answer, Reference, Verdict, dead_letters, judge
from tests.kafka.cluster import NEVER_DEAD, TIMEOUT, Cluster, Read, Reader, Sent, fresh, patiently
from tests.kafka.publisher import Acknowledged, Make, SteadyPublisher, publish
from tests.kafka.replica import Replica
from tests.models import mlp, save

WIDTH = 16  # floats of one row of the stage's usual model
MODEL = mlp(WIDTH, (32,), 4)
RAW_HEADER = ("content-type", RAW.encode())
# A replica's settings for each guarantee. A killed replica's open transaction holds readers up until its timeout.
GUARANTEES: Mapping[str, Mapping[str, str]] = {
    "at_least_once": {},
    "exactly_once": {"DELIVERY__GUARANTEE": "exactly_once", "DELIVERY__TRANSACTION_TIMEOUT_MS": "2000"},
}
both_guarantees = pytest.mark.parametrize("guarantee", GUARANTEES)
# Exactly once with the long runs only.
quick_at_least_once = pytest.mark.parametrize(
    "guarantee", ["at_least_once", pytest.param("exactly_once", marks=pytest.mark.slow)]
)
# At least once with the long runs only.
quick_exactly_once = pytest.mark.parametrize(
    "guarantee", [pytest.param("at_least_once", marks=pytest.mark.slow), "exactly_once"]
)
# The other group protocol with the long runs only.
quick_consumer = pytest.mark.parametrize("protocol", ["consumer", pytest.param("classic", marks=pytest.mark.slow)])
quick_classic = pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.slow)])
# A static member that comes back gets its partitions at once, like a restarted pod of a StatefulSet.
COMES_BACK: Mapping[str, str] = {
    "KAFKA__GROUP_PROTOCOL": "classic",
    "KAFKA__SESSION_TIMEOUT_MS": "6000",
    "KAFKA__GROUP_INSTANCE_ID": "the-one",
}
# Random rows, all different: the value shows an answer that belongs to another request.
ROWS = np.random.default_rng(7).standard_normal((65_536, WIDTH), dtype=np.float32)


def row(number: int) -> bytes:
    """The raw value of the n-th request, one row."""
    value: bytes = ROWS[number % len(ROWS)].tobytes()
    return value


def raw(number: int, *, key: bytes | None = None, partition: int = -1) -> Sent:
    """The n-th raw request."""
    return Sent(key, row(number), [RAW_HEADER], partition)


def wait_until_running(replica: Replica) -> None:
    """Wait until an inference runs."""
    deadline = time.monotonic() + TIMEOUT
    while not replica.metric("inference_worker_inference_running_seconds"):
        assert time.monotonic() < deadline, "nothing runs"
        time.sleep(0.05)


class Scene:
    """Owns all that a test starts; `with` ends it. `settings` are for every replica (`{"KAFKA__GROUP_ID": "g"}`).

    Under `exactly_once` nothing may be repeated, whatever a test allows. `session` says how long a KIP-848 group waits
    for a silent member: where a replica or its broker dies, it must be `MORTAL`.
    """

    def __init__(
        self,
        kafka: Cluster,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        *,
        guarantee: str = "at_least_once",
        model: bytes = MODEL,
        partitions: int = 4,
        request_topics: int = 1,
        response_config: Mapping[str, str] | None = None,
        session: float = NEVER_DEAD,
    ) -> None:
        self.kafka = kafka
        self.group = fresh("group")
        kafka.set_session(self.group, session)
        self.topics = [fresh("requests") for _ in range(request_topics)]
        self.response_topic, self.dead_letter_topic = fresh("answers"), fresh("dead")
        kafka.make_topics(
            [
                *[NewTopic(topic, num_partitions=partitions) for topic in self.topics],
                NewTopic(self.response_topic, num_partitions=partitions, config=dict(response_config or {})),
                NewTopic(self.dead_letter_topic, num_partitions=1, config={"max.message.bytes": "4000000"}),
            ]
        )
        self.acknowledged: Acknowledged = {}
        self._guarantee = guarantee
        self._order = (settings or {}).get("DELIVERY__ORDER", "partition")
        self._model = model
        self._folder = folder
        self._started: list[Replica] = []
        self._stack = ExitStack()
        self.settings = {
            "KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
            "KAFKA__REQUEST_TOPICS": ",".join(self.topics),
            "KAFKA__RESPONSE_TOPIC": self.response_topic,
            "KAFKA__DEAD_LETTER_TOPIC": self.dead_letter_topic,
            "KAFKA__GROUP_ID": self.group,
            "MODEL__PATH": str(save(model, folder)),
            "MODEL__DEVICE": "cpu",
            **GUARANTEES[guarantee],
            **(settings or {}),
        }
        self._partitions = partitions
        self._commits = Commits(kafka, self.group)
        self._stack.callback(self._commits.close)
        self.auditor = Auditor(
            kafka,
            request_topics=self.topics,
            response_topic=self.response_topic,
            partitions=partitions,
            group=self.group,
            requests=lambda: self.acknowledged,
        )
        self._stack.callback(self.auditor.close)

    @property
    def topic(self) -> str:
        """The first request topic."""
        return self.topics[0]

    def start(self, settings: Mapping[str, str] | None = None, variables: Mapping[str, str] | None = None) -> Replica:
        """Start one more replica."""
        name = f"replica-{len(self._started)}"
        replica = Replica({**self.settings, **(settings or {})}, self._folder, name, variables)
        self._started.append(replica)
        return self._stack.enter_context(replica)

    def replicas(self, count: int = 1) -> list[Replica]:
        """Start `count` more replicas; return when all are ready and have partitions of their own."""
        started = [self.start() for _ in range(count)]
        for replica in started:
            replica.wait_until_ready()
        self.wait_for_members(sum(replica.is_running for replica in self._started))
        return started

    def replica(self) -> Replica:
        """Start one more replica; return when it is ready and has partitions of its own."""
        return self.replicas(1)[0]

    def wait_for_members(self, count: int, timeout: float = TIMEOUT) -> None:
        """Wait until the group has `count` members and each has partitions."""
        deadline = time.monotonic() + timeout
        admin = AdminClient(dict(self.kafka.login))
        while (sizes := self._members(admin)) is None or len(sizes) != count or 0 in sizes:
            assert time.monotonic() < deadline, f"members have {sizes} partitions, {count} members wanted"
            time.sleep(0.05)
            if sizes is None:  # a client that saw its broker die described no group for 30 s after the restart
                admin = AdminClient(dict(self.kafka.login))  # and the one before is gone, with its question

    def _members(self, admin: AdminClient) -> list[int] | None:
        # An answer that comes when the client itself waits no more would end this process: see `OUTLASTING` in worker/.
        asked = admin.describe_consumer_groups([self.group], request_timeout=3600.0)
        try:
            found = asked[self.group].result(ANSWER_WITHIN)
        except (KafkaException, TimeoutError):  # the coordinator is not back yet
            return None
        return [len(member.assignment.topic_partitions) for member in found.members]

    def publish(self, requests: Sequence[Sent], topic: str | None = None) -> Acknowledged:
        """Send requests, wait for the acknowledgements, and remember the requests as owed."""
        acknowledged = publish(self.kafka, topic or self.topic, requests)
        self.acknowledged |= acknowledged
        return acknowledged

    def publishing(self, rate: float, make: Make | None = None) -> SteadyPublisher:
        """A steady load of keyed raw requests, all owed; `stop` it before the scene ends."""
        publisher = SteadyPublisher(self.kafka, make or self._keyed, rate)
        self.acknowledged = publisher.acknowledged
        return self._stack.enter_context(publisher)

    def _keyed(self, number: int) -> tuple[str, Sent]:
        return self.topics[number % len(self.topics)], raw(number, key=b"key-%d" % (number % 97))

    def wait_for_progress(self, answers: int, timeout: float = 2 * TIMEOUT) -> None:
        """Wait until `answers` more requests of every partition are committed."""
        deadline = time.monotonic() + timeout
        before: dict[int, int] | None = None
        now: dict[int, int] = {}
        while before is None or any(now.get(p, 0) < before.get(p, 0) + answers for p in range(self._partitions)):
            assert time.monotonic() < deadline, f"committed {before}, then {now} after {timeout} s"
            time.sleep(0.05)
            with suppress(KafkaException):  # the broker is away
                now = self._commits.of(self.topic, self._partitions)
                before = now if before is None else before

    def committed(self, topic: str | None = None) -> dict[int, int]:
        """The group's next offsets of a request topic, by partition. Waits for a slow broker."""
        return patiently(lambda: self._commits.of(topic or self.topic, self._partitions))

    def not_committed(self) -> int:
        """The number of answers whose requests are not committed. At least once only."""
        committed = sum(sum(self.committed(topic).values()) for topic in self.topics)
        return max(0, sum(self.kafka.end_offsets(self.response_topic).values()) - committed)

    def wait_for_offsets(self, timeout: float = TIMEOUT) -> None:
        """Wait until the group has an offset of each partition of the first topic."""
        deadline = time.monotonic() + timeout
        while len(found := self.committed()) < self._partitions:
            assert time.monotonic() < deadline, f"committed {found} after {timeout} s"
            time.sleep(0.02)

    def answers(self, timeout: float = TIMEOUT) -> list[Answer]:
        """All answers, once each request has one."""
        self.auditor.wait_for(self.acknowledged, timeout)
        return self.auditor.answers

    def verdict(self, timeout: float = TIMEOUT) -> Verdict:
        """The auditor's verdict, once each request has an answer or the time is over."""
        return judge(self.answers(timeout), self.acknowledged, self.auditor.unsafe_commits, order=self._order)

    def expect_kept(self, *, repeats: int = 0, timeout: float = TIMEOUT) -> None:
        """Fail the test unless every promise except the values was kept, at any instant, to readers early and late.

        At most `repeats` repeats are allowed; under `exactly_once` none, dead letters included.
        """
        allowed = 0 if self._guarantee == "exactly_once" else repeats
        self.verdict(timeout).expect_clean(repeats=allowed)
        self.expect_all_committed()
        with Reader(self.kafka, self.response_topic) as late:
            read_late = sorted((found.partition, found.offset) for found in late.read_to_end())
        self.auditor.wait_for_count(len(read_late))  # repeats may still be on their way to the auditor
        assert read_late == sorted((found.partition, found.offset) for found in self.auditor.answers)
        letters = dead_letters(self.kafka.read_all(self.dead_letter_topic))
        assert set(letters) == {found.source for found in self.auditor.answers if found.is_error}
        assert letters.total() - len(letters) <= allowed, letters.most_common(3)

    def expect_right_values(self) -> None:
        """Fail the test unless each raw answer equals ONNX Runtime's own result."""
        wrong = Reference(self._model).wrong_values(self.auditor.answers, self.acknowledged)
        assert not wrong, f"{len(wrong)} wrong values: {wrong[:3]}"

    def expect_all_committed(self, timeout: float = TIMEOUT) -> None:
        """Fail the test unless the group's offsets reach the log's end in time."""
        deadline = time.monotonic() + timeout
        while list(self._uncommitted()):
            assert time.monotonic() < deadline, f"not committed to the end: {list(self._uncommitted())}"
            time.sleep(0.05)

    def _uncommitted(self) -> Iterator[str]:
        for topic in self.topics:
            committed = self.committed(topic)
            for partition, end in self.kafka.end_offsets(topic).items():
                if end and committed.get(partition) != end:
                    yield f"{topic}/{partition} at {committed.get(partition)} of {end}"

    def dead_letters(self, count: int) -> list[Read]:
        """The dead letters in the topic's order, once there are `count`."""
        return self.kafka.read(self.dead_letter_topic, count)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is not None:
            for replica in self._started:
                error.add_note(f"--- {replica.name} ({replica}) ---\n{replica.log[-3000:]}")
        self._stack.close()
