"""The reader of the commands: it reads one topic without a group. It waits for an unreachable broker."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self, cast

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, Message, TopicPartition

from worker.core.failures import BadConfiguration, Incomplete, KafkaFatal, listed
from worker.core.records import Partition, Record
from worker.kafka.client.command_clients import ANSWER_TIMEOUT, client_log, open_client, reach, why_unusable
from worker.kafka.client.config import MOST_UNPACKED, Config
from worker.kafka.client.errors import UNREADABLE, is_closed
from worker.kafka.consumer.batch_end import UNPARSED, StallWatch, looking
from worker.kafka.consumer.flow import headers_of
from worker.settings import Connection

# Records of one read: enough to keep up with any publisher, few enough to return soon.
READ_AT_MOST = 1000
READ_FOR = 0.2  # seconds of one wait for records: short, so that a progress bar moves and a signal is seen
ASK_AGAIN = 0.2  # seconds between two questions; an election takes about as long
# An offset may be a transaction's marker or an aborted record, so more offsets are read than records are wanted.
_OFFSETS_FOR_EACH, _OFFSETS_AT_LEAST = 4, 100
# One of librdkafka's own codes, which begin with an underscore.
_EOF = KafkaError._PARTITION_EOF  # noqa: SLF001

_TUNING: Config = {
    "fetch.queue.backoff.ms": 20,  # the default of 1 s starves a reader that is faster than its network
    "queued.max.messages.kbytes": 32 * 1024,
    "receive.message.max.bytes": MOST_UNPACKED,
}
_PROMISED: Config = {
    "group.id": "inference-worker-reader",  # the client needs a group; this one is never joined, and gets no commits
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "earliest",  # if retention has deleted our position
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "check.crcs": False,  # see `consumer_config`
}


class Reader:
    """Reads one topic, each partition in order. One thread uses it. Owns a consumer that commits nothing.

    `beginnings` and `ends` have, by partition, the offsets of the first record and of the next one to come, from when
    the reader was made. Partitions that are added later are not read. It reads only committed records, and in a
    partition with a damaged batch only the records before that.
    """

    def __init__(self, kafka: Connection, topic: str) -> None:
        """Raises `BadConfiguration` if no broker answers, or if the topic does not exist for us."""
        self._kafka = kafka
        self._topic = topic
        found = reach(topic, kafka, "READ").cluster.topics[topic].partitions
        self._partitions = {number: Partition(topic, number) for number in sorted(found)}
        self._watch = StallWatch(self._new_looker)
        self._consumer = open_client(Consumer, kafka, _TUNING, {**_PROMISED, **self._watch.config}, client_log())
        self._short_of_end: dict[int, int] = {}
        self._damages: dict[Partition, str] = {}
        self.beginnings = self._offsets(OFFSET_BEGINNING)
        self.ends = self._offsets(OFFSET_END)

    def offsets_at(self, time_ms: int) -> Mapping[Partition, int]:
        """Returns the offset of the first record of that time (milliseconds since the epoch) or later; else the end.

        All records before that offset are older. Records after it may be older, too.
        """
        return {at: offset if offset >= 0 else self.ends[at] for at, offset in self._offsets(time_ms).items()}

    def start_at(self, offsets: Mapping[Partition, int]) -> None:
        self._short_of_end = {at.number: self.ends[at] for at, offset in offsets.items() if offset < self.ends[at]}
        self._consumer.assign([TopicPartition(*at, offset) for at, offset in offsets.items()])

    @property
    def has_reached_ends(self) -> bool:
        """True if everything below `ends` has been read, in the partitions that are being read."""
        return not self._short_of_end

    def up_to_ends(
        self, starts: Mapping[Partition, int], tell: Callable[[int], object] = lambda _: None
    ) -> Iterator[Record]:
        """Yields the records from these offsets up to `ends`. `tell` is called with the number of offsets passed.

        Raises as `read` does.
        """
        self.start_at(starts)
        nexts = dict(starts)
        while not self.has_reached_ends:
            for record in self.read(READ_FOR):
                nexts[record.partition] = record.offset + 1
                if record.offset < self.ends[record.partition]:
                    yield record
            tell(sum(nexts.values()) - sum(starts.values()))

    def read(self, timeout: float) -> Sequence[Record]:
        """Returns the records that have arrived. If there are none, waits at most `timeout` seconds for the first.

        Raises `KafkaFatal` if the topic is gone or closed to us.
        """
        try:
            messages = self._consumer.consume(READ_AT_MOST, 0)
            if not messages and timeout > 0:
                first = self._consumer.poll(timeout)
                messages = [] if first is None else [first, *self._consumer.consume(READ_AT_MOST, 0)]
        except KafkaException as error:
            raise KafkaFatal(f"{self._topic} cannot be read: {error.args[0].str()}") from error
        records = [record for message in messages if (record := self._record(message)) is not None]
        for partition, at, last in self._watch.damages(self._watch.stalls()):
            self._stop(partition, f"from {at} to {last}: {UNPARSED}")
        return records

    @property
    def read_ends(self) -> Mapping[Partition, int]:
        """The ends of the partitions in which no damaged batch was found."""
        return {at: end for at, end in self.ends.items() if at not in self._damages}

    def expect_whole(self) -> None:
        """Raises `Incomplete` if a batch was damaged: the records after it in its partition were not read."""
        if self._damages:
            raise Incomplete(f"what follows was not read: {listed(self._damages.values())}")

    def _stop(self, partition: Partition, why: str) -> None:
        self._damages[partition] = f"{partition} {why}"
        self._short_of_end.pop(partition.number, None)

    def close(self) -> None:
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _offsets(self, which: int) -> Mapping[Partition, int]:
        """Asks for offsets, several times if need be: new leaders and restarted brokers refuse the first questions."""
        give_up = time.monotonic() + ANSWER_TIMEOUT
        asked = [TopicPartition(self._topic, number, which) for number in self._partitions]
        while True:
            try:
                found = self._consumer.offsets_for_times(asked, timeout=ANSWER_TIMEOUT)
                error = next((at.error for at in found if at.error is not None), None)
            except KafkaException as failure:
                error = failure.args[0]
            if error is None:
                return MappingProxyType({self._partitions[at.partition]: at.offset for at in found})
            if is_closed(error) or time.monotonic() >= give_up:
                raise BadConfiguration(f"{self._topic} cannot be read: {why_unusable(self._topic, error, 'READ')}")
            time.sleep(ASK_AGAIN)

    def _record(self, message: Message) -> Record | None:
        number, error = cast("int", message.partition()), message.error()
        if error is not None:
            self._hear(number, message, error)
            return None
        offset = cast("int", message.offset())
        if self._short_of_end and offset + 1 >= self._short_of_end.get(number, offset + 2):
            del self._short_of_end[number]
        at = message.timestamp()[1]
        key, value, time_ms = message.key(), message.value(), at if at >= 0 else None
        return Record(self._partitions[number], offset, key, value, headers_of(message), time_ms)

    def _hear(self, number: int, message: Message, error: KafkaError) -> None:
        """Handle a partition's error. The client recovers from all others, and errors about the group do not matter."""
        if error.code() == _EOF:
            # Transactions' markers may come before the end, and they are no records.
            self._short_of_end.pop(number, None)
        elif error.code() in UNREADABLE:
            self._stop(self._partitions[number], f"from {message.offset()}: {error.str()}")
        elif is_closed(error):
            raise KafkaFatal(f"{self._topic} cannot be read: {why_unusable(self._topic, error, 'READ')}")

    def _new_looker(self, callbacks: Mapping[str, Any]) -> Consumer:
        config = looking({**_TUNING, **self._kafka.config, **_PROMISED})
        return open_client(Consumer, self._kafka, {}, {**config, **callbacks}, client_log())


def newest(kafka: Connection, topic: str, most: int) -> list[Record]:
    """Reads the newest records of a topic that have a value, at most so many, the oldest of them first.

    Raises `BadConfiguration` and `KafkaFatal`, as `Reader` does.
    """
    with Reader(kafka, topic) as reader:
        found = [record for record in reader.up_to_ends(near_ends(reader, most)) if record.value is not None]
    return heapq.nlargest(most, found, key=age)[::-1]


def near_ends(reader: Reader, most: int) -> Mapping[Partition, int]:
    """Returns offsets behind which so many records of each partition lie, or all of them."""
    reach = _OFFSETS_FOR_EACH * most + _OFFSETS_AT_LEAST
    return {at: max(first, reader.ends[at] - reach) for at, first in reader.beginnings.items()}


def age(record: Record) -> tuple[int, int]:
    """Orders records of several partitions by their times."""
    return record.timestamp_ms or 0, record.offset
