"""States read back from the changelog: one thread and one consumer outside the group, beside the loop.

    partition assigned ─▶ committed offset, once it is stable ─▶ end of the changelog ─▶ read up to it ─▶ the loop

The end is asked for after the group's offset is stable, and counts what is not committed yet: so whatever the
transactions of a former owner left is decided before the last state is read. Owns the thread and its clients. The loop
takes what was found in portions, so that other partitions are served meanwhile.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from queue import Empty, Full, Queue, SimpleQueue
from threading import Event, Thread
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from worker.core.failures import BadConfiguration, KafkaFatal, Stop
from worker.core.records import Partition
from worker.kafka.client.config import admin_config
from worker.kafka.client.errors import is_closed, words_of
from worker.kafka.client.log import ClientLog
from worker.settings import KafkaSettings
from worker.state import Restoration, RestoredRows, StateLayout

ASK_TIMEOUT = 5.0  # seconds of one question to the cluster
ASK_AGAIN_AFTER = 0.2
WAIT = 0.02  # for the next records, seconds
# Records of one portion: the loop takes it over in some milliseconds. Portions that wait for the loop.
PORTION, PORTIONS = 4_096, 16
PUT_SLICE = 0.1
# Read ahead: a changelog is read once, and nothing else waits for it.
TUNING: Mapping[str, str | int | float | bool] = {
    "fetch.queue.backoff.ms": 5,
    "queued.min.messages": 200_000,
    "queued.max.messages.kbytes": 128 * 1024,
    "fetch.max.bytes": 16 * 1024 * 1024,
    "max.partition.fetch.bytes": 4 * 1024 * 1024,
    "fetch.wait.max.ms": 20,
}


class _Wanted(NamedTuple):
    partition: Partition
    attempt: int


class _Restore(NamedTuple):
    """One partition under way, from `start` to `end` of its changelog."""

    restoration: Restoration
    start: int
    end: int


class ChangelogRestorer:
    """Reads changelogs for the loop. `begin`, `forget`, `found` and `close` are the loop's; none of them waits."""

    def __init__(
        self, kafka: KafkaSettings, topic: str, layout: StateLayout, logger: logging.Logger, *, is_exact: bool
    ) -> None:
        """`is_exact`: states are committed with the offsets. Otherwise those beyond the group's offset do not count."""
        self._kafka = kafka
        self._topic = topic
        self._layout = layout
        self._is_exact = is_exact
        self._log = ClientLog(logger)
        self._asked: SimpleQueue[_Wanted | Sequence[Partition] | None] = SimpleQueue()
        self._found: Queue[RestoredRows | Stop] = Queue(PORTIONS)
        self._is_closing = Event()
        self._restores: dict[int, _Restore] = {}  # by partition number
        self._waiting: list[_Wanted] = []
        self._ask_at = 0.0
        # Offsets of those partitions whose ends are known: in all, and still to be read. Written in the thread alone.
        self.total = self.left = 0
        # A daemon: a call that hangs must not keep a process alive that has decided to end.
        self._thread = Thread(target=self._serve, name="restorer", daemon=True)
        self._thread.start()

    # In the loop's thread

    def begin(self, partition: Partition, attempt: int) -> None:
        """Read the states of this partition; what is found for it names the attempt."""
        self._asked.put(_Wanted(partition, attempt))

    def forget(self, partitions: Sequence[Partition]) -> None:
        """These are not wanted any more; some may have been found already."""
        self._asked.put(tuple(partitions))

    def found(self) -> RestoredRows | None:
        """The next portion; None while there is none. Raises `Stop` when the changelog cannot be read."""
        try:
            item = self._found.get_nowait()
        except Empty:
            return None
        if isinstance(item, Stop):
            raise item
        return item

    def close(self, timeout: float) -> None:
        """End the thread."""
        self._is_closing.set()
        self._asked.put(None)
        self._thread.join(timeout)

    # In its thread

    def _serve(self) -> None:
        try:
            self._run()
        except Stop as stop:
            self._hand_over(stop)
        except Exception as error:  # noqa: BLE001  # nothing may die here unseen: the loop raises it
            self._hand_over(KafkaFatal(f"the changelog {self._topic} cannot be read: {error!r}; start again"))

    def _run(self) -> None:
        consumer: Consumer | None = None
        while not self._is_closing.is_set():
            self._hear(consumer, is_idle=not (self._restores or self._waiting))
            if self._is_closing.is_set():
                break
            if consumer is None:
                consumer = Consumer(self._config(), logger=self._log)
            if self._waiting and time.monotonic() >= self._ask_at:
                self._start(consumer)
            if self._restores:
                self._read(consumer)
            elif self._waiting:
                time.sleep(WAIT)
        if consumer is not None:
            consumer.close()

    def _config(self) -> dict[str, Any]:
        promised = {
            "group.id": self._kafka.group_id,  # asked where it stands, and never joined
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
        return {**TUNING, **admin_config(self._kafka), **promised}

    def _hear(self, consumer: Consumer | None, *, is_idle: bool) -> None:
        """What the loop wants; waits for it while there is nothing to do."""
        while is_idle or not self._asked.empty():
            asked = self._asked.get()
            if asked is None:
                return
            if isinstance(asked, _Wanted):
                self._waiting.append(asked)
                is_idle = False
            else:
                self._drop([partition.number for partition in asked], consumer)
                is_idle = not (self._restores or self._waiting)

    def _drop(self, numbers: Iterable[int], consumer: Consumer | None) -> None:
        gone = set(numbers)
        self._waiting = [wanted for wanted in self._waiting if wanted.partition.number not in gone]
        if left := [number for number in gone if self._restores.pop(number, None) is not None]:
            assert consumer is not None
            consumer.incremental_unassign([TopicPartition(self._topic, number) for number in left])

    # Where to begin and to end

    def _start(self, consumer: Consumer) -> None:
        """Begin with those whose end can be known now."""
        try:
            committed = consumer.committed([TopicPartition(*w.partition) for w in self._waiting], ASK_TIMEOUT)
            starts = self._offsets_of(OffsetSpec.earliest())  # type: ignore[no-untyped-call]  # the client declares no types there
            ends = self._offsets_of(OffsetSpec.latest())  # type: ignore[no-untyped-call]  # as above
        except KafkaException as error:
            if is_closed(error.args[0]):
                raise KafkaFatal(f"the changelog {self._topic} cannot be read: {words_of(error)}") from error
            self._log.tell("restore", f"the states of {len(self._waiting)} partitions wait: {words_of(error)}")
            self._ask_at = time.monotonic() + ASK_AGAIN_AFTER
            return
        begun: list[TopicPartition] = []
        for wanted, at in zip(self._waiting, committed, strict=True):
            number = wanted.partition.number
            stands = None if self._is_exact else max(at.offset, 0)
            restoration = Restoration(wanted.partition, wanted.attempt, self._layout, stands)
            if ends[number] <= starts[number]:
                self._hand_over(restoration.last())
            else:
                self.total += ends[number] - starts[number]
                self.left += ends[number] - starts[number]
                self._restores[number] = _Restore(restoration, starts[number], ends[number])
                begun.append(TopicPartition(self._topic, number, starts[number]))
        self._waiting = []
        if begun:
            consumer.incremental_assign(begun)

    def _offsets_of(self, spec: OffsetSpec) -> Mapping[int, int]:
        """By partition number, with what is in open transactions."""
        admin = AdminClient(admin_config(self._kafka), logger=self._log)
        asked = {TopicPartition(self._topic, w.partition.number): spec for w in self._waiting}
        answers = admin.list_offsets(asked, request_timeout=ASK_TIMEOUT)
        return {at.partition: answer.result().offset for at, answer in answers.items()}

    # Reading

    def _read(self, consumer: Consumer) -> None:
        messages = consumer.consume(PORTION, WAIT)
        by_number: dict[int, list[Message]] = {}
        for message in messages:
            if (error := message.error()) is None:
                by_number.setdefault(message.partition() or 0, []).append(message)
            elif is_closed(error):
                raise KafkaFatal(f"the changelog {self._topic} cannot be read: {error.str()}")
            else:
                self._log.tell("restore", f"the changelog {self._topic}: {error.str()}")
        for number, found in by_number.items():
            if (restore := self._restores.get(number)) is not None:
                self._take(restore.restoration, found)
        self._end_those_done(consumer)

    def _take(self, restoration: Restoration, messages: Sequence[Message]) -> None:
        """Portions of one kind each: states, or keys that are forgotten, in the order in which they came."""
        for is_gone, group in groupby(messages, lambda message: message.value() is None):
            part = list(group)
            keys = [message.key() or b"" for message in part]
            if is_gone:
                self._hand_over(restoration.forgotten(keys, list(map(_offset_of, part))))
                continue
            try:
                self._hand_over(restoration.states(keys, [message.value() or b"" for message in part]))
            except ValueError as error:
                raise BadConfiguration(
                    f"WORKER_KAFKA__CHANGELOG_TOPIC: {self._topic} holds {error}; name another topic for this model, "
                    "or delete and create this one, and every key begins anew"
                ) from None

    def _end_those_done(self, consumer: Consumer) -> None:
        numbers, left = list(self._restores), 0
        for at in consumer.position([TopicPartition(self._topic, number) for number in numbers]):
            restore = self._restores[at.partition]
            left += restore.end - min(max(at.offset, restore.start), restore.end)
            if at.offset >= restore.end:
                del self._restores[at.partition]
                consumer.incremental_unassign([TopicPartition(self._topic, at.partition)])
                self._hand_over(restore.restoration.last())
        self.left = left

    def _hand_over(self, item: RestoredRows | Stop) -> None:
        while not self._is_closing.is_set():
            try:
                self._found.put(item, timeout=PUT_SLICE)
            except Full:
                continue
            return


def _offset_of(message: Message) -> int:
    """Of the request that had the key forgotten; -1 where nothing says it."""
    text = dict(message.headers() or ()).get("offset") or b""
    return int(text) if text.isdigit() else -1
