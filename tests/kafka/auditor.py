"""Watches a worker's answers and its group's commits while a test goes on: commit safety at any instant.

Every request below a committed offset has an answer that a reader of committed data can read. Shares no code with
`worker`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from math import inf

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.kafka.checker import Answer, answer
from tests.kafka.cluster import TIMEOUT, Cluster, Reader
from tests.kafka.publisher import Acknowledged, Position

ANSWER_WITHIN = 2.0  # a broker that takes longer is away, seconds
LOOK_EVERY = 0.1  # how often committed offsets are compared with the answers, seconds


class Commits:
    """Asks for a group's committed offsets with a consumer that never joins it. For one thread at a time.

    The admin client could say it too, but librdkafka 2.16.0 crashes the process in `list_consumer_group_offsets` when
    the coordinator answers with an error, as it does while a broker restarts.
    """

    def __init__(self, cluster: Cluster, group: str) -> None:
        config = {**cluster.login, "group.id": group, "reconnect.backoff.max.ms": 500}
        # A consumer that reads committed data only would wait here while a transaction is open.
        self._consumer = Consumer({**config, "isolation.level": "read_uncommitted"})

    def of(self, topic: str, partitions: int) -> dict[int, int]:
        """Next offset by partition, where there is one. Raises `KafkaException` if the offsets cannot be read."""
        asked = [TopicPartition(topic, number) for number in range(partitions)]
        found = self._consumer.committed(asked, timeout=ANSWER_WITHIN)
        for at in found:
            if at.error is not None:
                raise KafkaException(at.error)
        return {at.partition: at.offset for at in found if at.offset >= 0}

    def close(self) -> None:
        """Let go of the connection."""
        self._consumer.close()


class Auditor:
    """Reads the answers as they come and looks at the group's commits every 100 ms, in a thread of its own.

    Owns its consumer and what it has read. A broker that is away is no fault: it looks again.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        request_topics: Sequence[str],
        response_topic: str,
        partitions: int,
        group: str,
        requests: Callable[[], Acknowledged],
    ) -> None:
        self.answers: list[Answer] = []
        self._answered: set[Position] = set()
        self._reader = Reader(cluster, response_topic, partitions=partitions)
        self._cluster = Cluster(cluster.bootstrap_servers)  # its own admin client: the test's is in another thread
        self._topics = request_topics
        self._topic = response_topic
        self._partitions = partitions
        self._commits = Commits(cluster, group)
        self._requests = requests
        self._checked: dict[tuple[str, int], int] = {}
        self._passed: dict[Position, int] = {}  # without an answer when the commit past them was seen
        self._stop = threading.Event()
        self._died_of: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="auditor", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                until = time.monotonic() + LOOK_EVERY
                self._look()
                while not self._stop.is_set() and (left := until - time.monotonic()) > 0:
                    self._read(left)
        except BaseException as error:  # noqa: BLE001  # raised again in the test's own thread
            self._died_of = error

    def _look(self, deadline: float = inf) -> None:
        """Note the requests below a committed offset that have no readable answer now."""
        try:
            committed = {(t, p): at for t in self._topics for p, at in self._commits.of(t, self._partitions).items()}
            ends = self._cluster.end_offsets(self._topic)
        except (KafkaException, TimeoutError):  # the broker is away
            return
        while not (self._stop.is_set() or self._reader.has_reached(ends)):
            assert time.monotonic() < deadline, f"nobody can read the answers up to {ends}: a transaction stays open"
            self._read(LOOK_EVERY)
        if not self._stop.is_set():
            for line, at in committed.items():
                self._check(line, at)

    def _check(self, line: tuple[str, int], committed: int) -> None:
        for offset in range(self._checked.get(line, 0), committed):
            if (position := Position(*line, offset)) not in self._answered:
                self._passed[position] = committed
        self._checked[line] = max(committed, self._checked.get(line, 0))

    @property
    def unsafe_commits(self) -> list[str]:
        """Requests that a commit passed before their answers could be read."""
        requests = self._requests()  # asked now: an acknowledgement may come later than the answer
        passed = [(position, at) for position, at in self._passed.copy().items() if position in requests]
        return [f"{position} was committed past ({at}) and not answered" for position, at in passed]

    def _read(self, timeout: float) -> None:
        self._reader.read(timeout)
        for record in self._reader.records[len(self.answers) :]:
            found = answer(record)
            self.answers.append(found)
            if found.source is not None:
                self._answered.add(found.source)

    def wait_for(self, positions: Collection[Position], timeout: float = TIMEOUT) -> None:
        """Wait until each has an answer, or the time is over: `judge` then says which are lost."""
        deadline = time.monotonic() + timeout
        while not self._answered.issuperset(positions) and time.monotonic() < deadline and self._thread.is_alive():
            time.sleep(0.02)

    def wait_for_count(self, count: int) -> None:
        """Wait until `count` answers are read, or the time is over."""
        deadline = time.monotonic() + TIMEOUT
        while len(self.answers) < count and time.monotonic() < deadline and self._thread.is_alive():
            time.sleep(0.02)

    def close(self) -> None:
        """Look a last time, take in what is there, and stop. Raises what went wrong in the thread."""
        self._stop.set()
        self._thread.join()
        if self._died_of is not None:
            raise self._died_of
        self._stop.clear()
        self._look(time.monotonic() + TIMEOUT)
        self._reader.close()
        self._commits.close()
