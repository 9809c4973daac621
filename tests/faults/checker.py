"""Reads a run from Kafka and enters it in the books: requests, answers and dead letters, and the group's commits.

Two threads, each with a consumer of its own that joins no group. One reads with `read_committed`, like a reader under
exactly once; one looks at the commits every 100 ms and on request.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, NamedTuple, Self
from zlib import crc32

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.faults.books import Books, Look, Place, Seen, Source
from tests.faults.history import History
from tests.faults.requests import Request

LOOK_EVERY = 0.1  # seconds
ANSWER_WITHIN = 1.0  # a broker that takes longer is away, seconds
END = -1  # as a timestamp it asks for the end of the log


class Topics(NamedTuple):
    """The topics of a run."""

    requests: Sequence[str]
    answers: str
    dead: str
    partitions: int  # of all request topics together, numbered one topic after the other
    dead_partitions: int

    @property
    def each(self) -> int:
        """The number of partitions of one request topic, and of the answers."""
        return self.partitions // len(self.requests)

    @property
    def firsts(self) -> Mapping[str, int]:
        """The number of each request topic's first partition."""
        return {topic: self.each * at for at, topic in enumerate(self.requests)}

    @property
    def places(self) -> dict[tuple[str, int], Place]:
        """The partitions to read: (topic, partition) → place."""
        read = [(topic, "requests", self.each, first) for topic, first in self.firsts.items()]
        read += [(self.answers, "answers", self.each, 0), (self.dead, "dead", self.dead_partitions, 0)]
        return {(topic, at): Place(what, first + at) for topic, what, count, first in read for at in range(count)}

    def lying(self, number: int) -> tuple[str, int]:
        """The topic and the partition there of this number."""
        return self.requests[number // self.each], number % self.each

    def taking(self, asked: Request) -> tuple[str, int]:
        """The topic and the partition there for this request; -1: the key chooses. A key has one topic."""
        if asked.partition >= 0:
            return self.lying(asked.partition)
        return self.requests[crc32(asked.key or b"") % len(self.requests)], -1


class Checker:
    """Owns both threads and consumers. The books are its reading thread's."""

    def __init__(self, servers: str, group: str, topics: Topics, books: Books, history: History) -> None:
        self.unanswered_looks = 0  # because the broker was away
        self.last_look_failed = True  # until a look is answered; at the end: the last commits were not seen
        self._books = books
        self._history = history
        self._topics = topics
        self._places = topics.places
        common = {"bootstrap.servers": servers, "enable.auto.commit": False, "log_level": 2}
        common |= {"reconnect.backoff.max.ms": 500}
        reading = {"group.id": f"{group}-checker", "isolation.level": "read_committed", "enable.partition.eof": True}
        self._reader = Consumer({**common, **reading, "auto.offset.reset": "error", "fetch.wait.max.ms": 50})
        # Read uncommitted: a dead replica's open transaction must not keep us from looking.
        self._looker = Consumer({**common, "group.id": group, "isolation.level": "read_uncommitted"})
        self._looks: SimpleQueue[Look] = SimpleQueue()
        self._spoiled: dict[tuple[int, int], tuple[int, Mapping[Source, int]]] = {}
        self._look_now = threading.Event()
        self._stop_looking, self._stop_reading = threading.Event(), threading.Event()
        self._failure: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._until_failure, args=(what,), name=name, daemon=True)
            for name, what in (("looker", self._look_on), ("reader", self._read_on))
        ]
        for thread in self._threads:
            thread.start()

    def look(self) -> None:
        """Look at the commits at once."""
        self._look_now.set()

    def pass_over(self, partition: int, first: int, next_offset: int, lost: Mapping[Source, int]) -> None:
        """No reader will get the requests from `first` on in this batch; the one before it can still be read.

        `lost` has their numbers. Call it before anybody can read them.
        """
        self._spoiled[partition, first] = next_offset, lost

    def committed(self) -> dict[int, int]:
        """The last look's commits: partition → next offset."""
        return dict(self._books.committed)

    def expect_alive(self) -> None:
        """Raise `RuntimeError` if one of the threads has failed."""
        if self._failure is not None:
            raise RuntimeError("the checker itself failed") from self._failure

    def finish(self, timeout: float) -> None:
        """Look a last time, read up to there, and stop. Looks not yet covered by then stay unjudged in the books."""
        self._stop_looking.set()
        self._look_now.set()
        self._threads[0].join()
        deadline = time.monotonic() + timeout
        while (self._books.unjudged or not self._looks.empty()) and time.monotonic() < deadline:
            self.expect_alive()
            time.sleep(0.05)
        self._stop()
        self.expect_alive()

    def _until_failure(self, what: Callable[[], None]) -> None:
        try:
            what()
        except BaseException as error:  # noqa: BLE001  # raised again in the main thread
            self._failure = error

    def _look_on(self) -> None:
        while not self._stop_looking.is_set():
            due = time.monotonic() + LOOK_EVERY
            self._look_now.clear()
            self._look()
            self._look_now.wait(max(0.0, due - time.monotonic()))
        self._look()

    def _look(self) -> None:
        asked = [TopicPartition(*self._topics.lying(number)) for number in range(self._topics.partitions)]
        at = self._history.now
        try:
            committed = _offsets(self._looker.committed(asked, timeout=ANSWER_WITHIN))
            asked = [TopicPartition(topic, number, END) for topic, number in self._places]
            ends = _offsets(self._looker.offsets_for_times(asked, timeout=ANSWER_WITHIN))
        except KafkaException:  # the broker is away
            self.unanswered_looks += 1
            self.last_look_failed = True
            self._learn_leaders()
            return
        self.last_look_failed = False
        by_number = {self._places[at].partition: offset for at, offset in committed.items() if offset >= 0}
        self._history.write("looked", committed=by_number)
        self._looks.put(Look(at, by_number, {self._places[place]: end for place, end in ends.items()}))

    def _learn_leaders(self) -> None:
        """Refresh the leaders: else the client keeps a dead leader's epoch, and questions about ends are refused."""
        with suppress(KafkaException):
            for topic in (*self._topics.requests, self._topics.answers, self._topics.dead):
                self._looker.list_topics(topic, timeout=ANSWER_WITHIN)

    def _read_on(self) -> None:
        self._reader.assign([TopicPartition(topic, number, 0) for topic, number in self._places])
        while not self._stop_reading.is_set():
            self._take_looks()
            first = self._reader.poll(0.05)
            reached: dict[Place, int] = {}
            for message in [] if first is None else [first, *self._reader.consume(1000, 0.0)]:
                self._take(message, reached)
            for place, offset in reached.items():
                self._books.reached(place, offset)

    def _take_looks(self) -> None:
        while True:
            try:
                look = self._looks.get_nowait()
            except Empty:
                return
            self._books.looked(look)

    def _take(self, message: Message, reached: dict[Place, int]) -> None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        assert topic is not None
        assert partition is not None
        assert offset is not None
        place = self._places[topic, partition]
        # A partition's end comes as an event of its own: markers of transactions are no messages.
        reached[place] = offset + (error is None)
        if error is None:
            self._enter(place, Seen(place.partition, offset, message.key(), message.value(), _headers(message)))
            if place.topic == "requests" and (spoiled := self._spoiled.pop((place.partition, offset + 1), None)):
                next_offset, lost = spoiled
                self._books.lost(lost)
                self._reader.seek(TopicPartition(topic, partition, next_offset))

    def _enter(self, place: Place, seen: Seen) -> None:
        at = f"{seen.partition}/{seen.offset}"
        if place.topic == "requests":
            self._books.requested(seen)
        elif place.topic == "answers":
            said = {"source": seen.headers.get("source"), "status": seen.headers.get("status")}
            self._history.write("answered", at=at, **said)
            self._books.answered(seen, self._history.now)
        else:
            self._history.write("dead_letter", at=at, request=seen.headers.get("request-id"))
            self._books.dead_lettered(seen)

    def _stop(self) -> None:
        self._stop_looking.set()
        self._stop_reading.set()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop()
        self._reader.close()
        self._looker.close()


def _offsets(found: list[TopicPartition]) -> dict[tuple[str, int], int]:
    for at in found:
        if at.error is not None:
            raise KafkaException(at.error)
    return {(at.topic, at.partition): at.offset for at in found}


def _headers(message: Message) -> Mapping[str, str]:
    pairs: Any = message.headers() or []
    return {name: (value or b"").decode(errors="replace") for name, value in pairs}
