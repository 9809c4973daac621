"""The oracle: what a publisher was promised, checked from the response topic alone. Shares no code with `worker`.

| promise | broken when |
|---|---|
| nothing lost | an acknowledged request has no answer |
| order | a consumer that keeps the highest offset per response partition and source partition would drop an answer |
| repeats | more answers name a `source` than allowed |
| right answers | value, key or a header is not what the wire contract says |
| commit safety | the group's committed offset passes a request whose answer cannot be read |
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import onnxruntime
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from tests.kafka.cluster import TIMEOUT, Cluster, Read, fresh
from tests.kafka.publisher import Acknowledged, Position

ANSWER_WITHIN = 2.0  # a broker that takes longer is away, seconds
LOOK_EVERY = 0.1  # how often committed offsets are compared with the answers, seconds
RAW = "application/octet-stream"


class Answer(NamedTuple):
    """One record of the response topic, or of the dead-letter topic."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, str]
    source: Position | None  # None: it does not say, or not in the contract's form

    @property
    def is_error(self) -> bool:
        return self.headers.get("status") == "error"


def answer(record: Read) -> Answer:
    """A record as an answer. Fails the test when a header comes twice or is no UTF-8."""
    names = Counter(name for name, _ in record.headers)
    assert max(names.values(), default=0) <= 1, f"a header comes twice: {record.headers}"
    headers = {name: (value or b"").decode() for name, value in record.headers}
    source = _position(headers.get("source", ""))
    return Answer(record.partition, record.offset, record.key, record.value, headers, source)


def _position(text: str) -> Position | None:
    parts = text.split("/")
    if len(parts) != 3 or not (parts[1].isdigit() and parts[2].isdigit()):
        return None
    return Position(parts[0], int(parts[1]), int(parts[2]))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found, each as text for people; all empty but `repeats` when every promise was kept."""

    lost: Sequence[str]
    disordered: Sequence[str]
    unasked: Sequence[str]
    faults: Sequence[str]
    unsafe_commits: Sequence[str]
    repeats: int

    def expect_clean(self, *, repeats: int = 0) -> None:
        """Fail the test unless all was kept, with at most so many repeats."""
        for name in ("lost", "disordered", "unasked", "faults", "unsafe_commits"):
            found = getattr(self, name)
            assert not found, f"{len(found)} {name}: {found[:5]}"
        assert self.repeats <= repeats, f"{self.repeats} answers repeated, at most {repeats} allowed"


def judge(answers: Iterable[Answer], acknowledged: Acknowledged, unsafe_commits: Sequence[str] = ()) -> Verdict:
    """Everything but the values (`wrong_values`)."""
    seen: Counter[Position] = Counter()
    kept: set[Position] = set()  # what a consumer that drops repeats by the contract's rule is left with
    highest: dict[tuple[int, str, int], int] = {}
    unasked, faults = [], []
    for found in answers:
        asked = acknowledged.get(found.source) if found.source else None
        if found.source is None or asked is None:
            unasked.append(f"{found.partition}/{found.offset}: {found.headers}")
            continue
        seen[found.source] += 1
        line = (found.partition, found.source.topic, found.source.partition)
        if found.source.offset > highest.get(line, -1):
            highest[line] = found.source.offset
            kept.add(found.source)
        faults += [f"{found.source}: {fault}" for fault in _header_faults(found, asked.key)]
    lost = [str(position) for position in acknowledged if position not in seen]
    disordered = [str(position) for position in seen if position not in kept]
    return Verdict(lost, disordered, unasked, faults, unsafe_commits, seen.total() - len(seen))


def _header_faults(found: Answer, key: bytes | None) -> Iterable[str]:
    status = found.headers.get("status")
    if status not in ("ok", "error"):
        yield f"status is {status!r}"
    if (status == "error") != ("error-code" in found.headers):
        yield f"status {status!r} with error-code {found.headers.get('error-code')!r}"
    if "content-type" not in found.headers:
        yield "no content-type"
    if found.headers.get("request-id") == str(found.source):
        yield "request-id repeats source"
    if found.key != key:
        yield f"key {found.key!r}, not {key!r}"


class Reference:
    """ONNX Runtime alone: the model without any worker. One input and one output, both FP32 (batch, width)."""

    def __init__(self, model: bytes) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self._input = self._session.get_inputs()[0].name

    def run(self, rows: np.ndarray) -> np.ndarray:
        """(n, width) float32 → (n, outputs) float32."""
        result: np.ndarray = self._session.run(None, {self._input: rows})[0]
        return result

    def wrong_values(self, answers: Iterable[Answer], acknowledged: Acknowledged) -> list[str]:
        """The raw `ok` answers whose rows are not the model's for their request, to the last bits but a few."""
        pairs = [(a, acknowledged[a.source].value or b"") for a in answers if a.source and not a.is_error]
        if not pairs:
            return []
        width = self._session.get_inputs()[0].shape[1]
        rows = np.frombuffer(b"".join(value for _, value in pairs), "<f4").reshape(-1, width)
        expected, at, wrong = self.run(rows), 0, []
        for found, value in pairs:
            count = len(value) // (4 * width)
            wrong += _raw_faults(found, expected[at : at + count])
            at += count
        return wrong


def _raw_faults(found: Answer, expected: np.ndarray) -> list[str]:
    if found.headers.get("content-type") != RAW:
        return [f"{found.source}: content-type {found.headers.get('content-type')}"]
    if len(found.value or b"") != expected.nbytes:
        return [f"{found.source}: {len(found.value or b'')} bytes, not {expected.nbytes}"]
    got = np.frombuffer(found.value or b"", "<f4").reshape(expected.shape)
    # Batched and single results differ in the last bits.
    return [] if np.allclose(got, expected, rtol=1e-4, atol=1e-5) else [f"{found.source}: {got} is not {expected}"]


class Commits:
    """What a group has committed, asked by a consumer that never joins it. For one thread at a time.

    The admin client could say it too, but librdkafka 2.16.0 crashes the process in `list_consumer_group_offsets` when
    the coordinator answers with an error, as it does while a broker restarts.
    """

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._consumer = Consumer({**cluster.login, "group.id": group, "reconnect.backoff.max.ms": 500})

    def of(self, topic: str, partitions: int) -> dict[int, int]:
        """Next offset by partition; those without one are left out. Raises `KafkaException` while it cannot be had."""
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
        self.unsafe_commits: list[str] = []
        self._answered: set[Position] = set()
        self._cluster = Cluster(cluster.bootstrap_servers)  # its own admin client: the test's is in another thread
        self._topics = request_topics
        self._topic = response_topic
        self._partitions = partitions
        self._commits = Commits(cluster, group)
        self._requests = requests
        self._checked: dict[tuple[str, int], int] = {}
        self._consumer = Consumer(
            {
                **cluster.login,
                "group.id": fresh("auditor"),
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,
                "reconnect.backoff.max.ms": 500,
            }
        )
        # Partitions are named: a consumer that learns them from the metadata of a fresh topic may see none.
        self._consumer.assign([TopicPartition(response_topic, number, 0) for number in range(partitions)])
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

    def _look(self) -> None:
        """Every acknowledged request below a committed offset has an answer that can be read now."""
        requests = self._requests().copy()
        try:
            committed = {(t, p): at for t in self._topics for p, at in self._commits.of(t, self._partitions).items()}
            ends = self._cluster.end_offsets(self._topic)
        except (KafkaException, TimeoutError):  # the broker is away
            return
        while not (self._stop.is_set() or self._has_reached(ends)):
            self._read(LOOK_EVERY)
        if not self._stop.is_set():
            for line, at in committed.items():
                self._check(line, at, requests)

    def _check(self, line: tuple[str, int], committed: int, requests: Acknowledged) -> None:
        for offset in range(self._checked.get(line, 0), committed):
            position = Position(*line, offset)
            if position in requests and position not in self._answered:
                self.unsafe_commits.append(f"{position} is committed past ({committed}) and not answered")
        self._checked[line] = max(committed, self._checked.get(line, 0))

    def _has_reached(self, ends: Mapping[int, int]) -> bool:
        asked = [TopicPartition(self._topic, partition) for partition, end in ends.items() if end]
        return all(at.offset >= ends[at.partition] for at in self._consumer.position(asked))

    def _read(self, timeout: float) -> None:
        first = self._consumer.poll(timeout)
        for message in [] if first is None else [first, *self._consumer.consume(1000, 0.0)]:
            found = _answer_of(message)
            self.answers.append(found)
            if found.source is not None:
                self._answered.add(found.source)

    def wait_for(self, positions: Collection[Position], timeout: float = TIMEOUT) -> None:
        """Until each has an answer, or the time is over: `judge` then says which are lost."""
        deadline = time.monotonic() + timeout
        while not self._answered.issuperset(positions) and time.monotonic() < deadline and self._thread.is_alive():
            time.sleep(0.02)

    def close(self) -> None:
        """Look a last time, take in what is there, and stop. Raises what went wrong in the thread."""
        self._stop.set()
        self._thread.join()
        if self._died_of is not None:
            raise self._died_of
        self._stop.clear()
        self._look()
        self._consumer.close()
        self._commits.close()


def _answer_of(message: Message) -> Answer:
    if error := message.error():
        raise KafkaException(error)
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    headers = message.headers() or []
    assert isinstance(headers, list)
    pairs = [(name, value if isinstance(value, bytes) else None) for name, value in headers]
    return answer(Read(partition, offset, message.key(), message.value(), pairs))
