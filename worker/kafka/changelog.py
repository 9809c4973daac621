"""Restores states from the changelog, on a thread of its own with one consumer outside the group.

    partition assigned ─▶ committed offset, once it is stable ─▶ end of the changelog ─▶ read up to it ─▶ the loop

If a copy of a partition's states was kept, only the records after it are read. Records that cannot be read end the
worker: otherwise older states would silently replace the states in them.

The end is asked for only after the group's offset is stable, and it counts uncommitted records. So a former owner's
transactions are decided before the last state is read. The restorer owns the thread and its clients. The loop takes the
states in portions, so that it serves other partitions meanwhile.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from queue import Empty, Full, Queue, SimpleQueue
from threading import Event, Thread
from typing import Any, NamedTuple

from confluent_kafka import Consumer, IsolationLevel, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from worker.core.failures import BadConfiguration, KafkaFatal, Stop
from worker.core.records import Partition
from worker.kafka.client.config import MOST_UNPACKED, admin_config
from worker.kafka.client.errors import UNREADABLE, ClientLog, is_closed, words_of
from worker.kafka.cluster.admin_answers import known_offset, told, told_offset, topic_configs
from worker.kafka.consumer.batch_end import UNPARSED, StallWatch, find_end, looking
from worker.kafka.consumer.flow import headers_of
from worker.settings import KafkaSettings
from worker.state import Extent, Restoration, RestoredRows, StateLayout, tombstone_of, why_not

ASK_TIMEOUT = 5.0  # seconds of one question to the cluster
ASK_AGAIN_AFTER = 0.2
LEAST_TIMEOUT = 0.01  # the client counts milliseconds
WAIT = 0.02  # seconds, for the next records
# Records of one portion, which the loop takes over in some milliseconds; and the most portions that wait for the loop.
PORTION, PORTIONS = 4_096, 16
PUT_SLICE = 0.1
DOUBTFUL = "a killed replica wrote states that do not count, and the ones before them may be newer"
# The consumer reads far ahead: a changelog is read once, and nothing else waits for it.
TUNING: Mapping[str, str | int | float | bool] = {
    "fetch.queue.backoff.ms": 5,
    "queued.min.messages": 200_000,
    "queued.max.messages.kbytes": 128 * 1024,
    "fetch.max.bytes": 16 * 1024 * 1024,
    "max.partition.fetch.bytes": 4 * 1024 * 1024,
    "fetch.wait.max.ms": 20,
    "receive.message.max.bytes": MOST_UNPACKED,
}


class ChangelogFacts(NamedTuple):
    """One changelog's identity, and `retention`: the least seconds that it keeps tombstones (`delete.retention.ms`)."""

    cluster_id: str
    topic_id: str
    retention: float


def changelog_facts(kafka: KafkaSettings, topic: str, logger: logging.Logger) -> ChangelogFacts | None:
    """Ask the cluster for the facts of a changelog; None if it does not tell all of them."""
    admin = AdminClient(admin_config(kafka), logger=ClientLog(logger))
    try:
        cluster = told(admin.describe_cluster(request_timeout=ASK_TIMEOUT), ASK_TIMEOUT)
        described = told(
            admin.describe_topics(TopicCollection([topic]), request_timeout=ASK_TIMEOUT)[topic], ASK_TIMEOUT
        )
        configs = topic_configs(admin, [topic], ["delete.retention.ms"], ASK_TIMEOUT)[topic]
    except KafkaException:
        return None
    if cluster is None or cluster.cluster_id is None or described is None or not configs:
        return None
    return ChangelogFacts(cluster.cluster_id, str(described.topic_id), int(configs["delete.retention.ms"]) / 1000)


class _Wanted(NamedTuple):
    """A partition to restore. `extent` is that of the copy here, if there is one."""

    partition: Partition
    attempt: int
    extent: Extent | None


class _Restore(NamedTuple):
    """One partition under way, from `start` to the end that its changelog had when it was asked."""

    restoration: Restoration
    wanted: _Wanted
    start: int
    extent: Extent


class ChangelogRestorer:
    """Reads changelogs for the loop. Only the loop calls its public methods, and only `ends` and `close` wait."""

    def __init__(
        self,
        kafka: KafkaSettings,
        topic: str,
        layout: StateLayout,
        logger: logging.Logger,
        *,
        is_exact: bool,
        date: Callable[[], float],
        retention: float = 0.0,
    ) -> None:
        """`is_exact`: states are committed with the offsets; otherwise states beyond the group's offset do not count.

        `date`: the system's time, in seconds. `retention`: the seconds for which the changelog keeps tombstones.
        """
        self._kafka = kafka
        self._topic = topic
        self._layout = layout
        self._is_exact = is_exact
        self._date = date
        self._retention = retention
        self._log = ClientLog(logger)
        self._asked: SimpleQueue[_Wanted | frozenset[Partition] | None] = SimpleQueue()
        self._found: Queue[RestoredRows | Stop] = Queue(PORTIONS)
        self._is_closing = Event()
        self._restores: dict[int, _Restore] = {}  # by partition number
        self._waiting: list[_Wanted] = []
        self._ask_at = 0.0
        self._watch = StallWatch(self._new_looker)
        # Offsets of the partitions whose ends are known: in all, and still to be read. Only the thread writes them.
        self.total = self.left = 0
        # A daemon: a call that hangs must not keep a process alive that has decided to end.
        self._thread = Thread(target=self._serve, name="restorer", daemon=True)
        self._thread.start()

    # In the loop's thread

    def begin(self, partition: Partition, attempt: int, extent: Extent | None) -> None:
        """Read the states of this partition; each portion names the attempt. `extent` is that of the copy here."""
        self._asked.put(_Wanted(partition, attempt, extent))

    def forget(self, partitions: Sequence[Partition]) -> None:
        """Stop reading these partitions; some of their states may have been found already."""
        self._asked.put(frozenset(partitions))

    def found(self) -> RestoredRows | None:
        """The next portion; None while there is none. Raises `Stop` when the changelog cannot be read."""
        try:
            item = self._found.get_nowait()
        except Empty:
            return None
        if isinstance(item, Stop):
            raise item
        return item

    def ends(self, partitions: Collection[Partition], timeout: float) -> Mapping[Partition, Extent]:
        """The ends of these partitions, without open transactions, as far as told within `timeout` seconds."""
        if timeout <= 0:
            return {}
        now, each = self._date(), max(timeout / 2, LEAST_TIMEOUT)
        try:
            self._asking.list_topics(self._topic, each)
        except KafkaException:
            return {}
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client declares no types there
        asked = {TopicPartition(self._topic, partition.number): latest for partition in partitions}
        futures = self._asking.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=each)
        found = {at.partition: told_offset(answer, each) for at, answer in futures.items()}
        return {p: Extent(end, now) for p in partitions if (end := found[p.number]) is not None}

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
        while True:
            self._hear()
            if self._is_closing.is_set():
                break
            if self._waiting and time.monotonic() >= self._ask_at:
                self._start()
            if self._restores:
                self._read()
            elif self._waiting:
                time.sleep(WAIT)
        if "_consumer" in self.__dict__:
            self._consumer.close()

    @cached_property
    def _consumer(self) -> Consumer:
        return Consumer(self._config(), logger=self._log)

    def _config(self) -> dict[str, Any]:
        promised = {
            "group.id": self._kafka.group_id,  # asked for its offsets, and never joined
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
        return {**TUNING, **admin_config(self._kafka), **promised, **self._watch.config}

    def _new_looker(self, callbacks: Mapping[str, Any]) -> Consumer:
        return Consumer({**looking(self._config()), **callbacks})

    def _hear(self) -> None:
        """Take the loop's requests; wait for one while there is nothing to do."""
        while not self._is_closing.is_set() and not (self._asked.empty() and (self._restores or self._waiting)):
            asked = self._asked.get()
            if isinstance(asked, _Wanted):
                self._waiting.append(asked)
            elif asked is not None:
                self._drop([partition.number for partition in asked])

    def _drop(self, numbers: Iterable[int]) -> None:
        gone = set(numbers)
        self._waiting = [wanted for wanted in self._waiting if wanted.partition.number not in gone]
        if left := [number for number in gone if self._restores.pop(number, None) is not None]:
            self._consumer.incremental_unassign([TopicPartition(self._topic, number) for number in left])

    # Where to begin and to end

    def _start(self) -> None:
        """Begin with all waiting partitions, if their ends can be known now."""
        asked_at = self._date()
        try:
            # Without these calls the clients find the leaders 1 s later (measured 2026-11).
            self._consumer.list_topics(self._topic, ASK_TIMEOUT)
            self._asking.list_topics(self._topic, ASK_TIMEOUT)
            committed = self._consumer.committed([TopicPartition(*w.partition) for w in self._waiting], ASK_TIMEOUT)
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
            extent = self._usable(wanted, starts[number], ends[number])
            restoration = Restoration(
                wanted.partition,
                wanted.attempt,
                self._layout,
                max(at.offset, 0),
                is_exact=self._is_exact,
                is_tail=extent is not None,
            )
            start = starts[number] if extent is None else extent.next_offset
            restore = _Restore(restoration, wanted, start, Extent(ends[number], asked_at))
            if ends[number] <= start:
                self._hand_over(self._last(restoration, restore.extent))
            else:
                self.total += ends[number] - start
                self.left += ends[number] - start
                self._restores[number] = restore
                begun.append(TopicPartition(self._topic, number, start))
        self._waiting = []
        if begun:
            self._consumer.incremental_assign(begun)

    def _usable(self, wanted: _Wanted, start: int, end: int) -> Extent | None:
        """The copy's extent if the copy may be used. Otherwise the loop is told to throw the copy away."""
        if wanted.extent is None:
            return None
        if (why := why_not(wanted.extent, start, end, self._date(), self._retention)) is None:
            return wanted.extent
        self._hand_over(RestoredRows(wanted.partition, wanted.attempt, (), None, anew=why))
        return None

    @cached_property
    def _asking(self) -> AdminClient:
        """One client for all questions: the end of a client takes 3 s now and then (seen 2026-11).

        Ask for the leaders first. Otherwise a newly elected leader refuses questions for minutes (FENCED_LEADER_EPOCH).
        """
        return AdminClient(admin_config(self._kafka), logger=self._log)

    def _offsets_of(self, spec: OffsetSpec) -> Mapping[int, int]:
        """The offsets by partition number, open transactions included. Raises `KafkaException` if one is not told."""
        asked = {TopicPartition(self._topic, w.partition.number): spec for w in self._waiting}
        answers = self._asking.list_offsets(asked, request_timeout=ASK_TIMEOUT)
        return {at.partition: known_offset(answer) for at, answer in answers.items()}

    # Reading

    def _read(self) -> None:
        by_number: dict[int, list[Message]] = {}
        for message in self._consumer.consume(PORTION, WAIT):
            if (error := message.error()) is None:
                by_number.setdefault(message.partition() or 0, []).append(message)
            elif is_closed(error):
                raise KafkaFatal(f"the changelog {self._topic} cannot be read: {error.str()}")
            elif error.code() in UNREADABLE:
                self._fail(message.partition() or 0, message.offset() or 0, error.str())
            else:
                self._log.tell("restore", f"the changelog {self._topic}: {error.str()}")
        for number, found in by_number.items():
            if (restore := self._restores.get(number)) is not None:
                self._take(restore.restoration, found)
                if restore.restoration.must_begin_anew:
                    self._begin_anew(restore.wanted)
        self._look_into_stalls()
        self._end_those_done()

    def _fail(self, number: int, first: int, reason: str) -> None:
        """Read the batch that begins at `first` again, or raise `KafkaFatal`: a failure may be the network's."""
        restore, partition = self._restores.get(number), Partition(self._topic, number)
        if restore is None:  # the partition left
            return
        at = max(first, restore.start)
        last, _ = find_end(self._new_looker, partition, first, at)
        if last >= at:
            raise _lost(partition, at, last, reason)
        self._consumer.seek(TopicPartition(*partition, at))

    def _look_into_stalls(self) -> None:
        """Log partitions that wait for an open transaction. Raises `KafkaFatal` for records that cannot be parsed."""
        stalls = self._watch.stalls()
        for partition, stall in stalls:
            if stall.is_transaction:
                self._log.tell("restore", f"the states of {partition} wait: {stall.reason}")
        for partition, first, last in self._watch.damages(stalls):
            raise _lost(partition, first, last, UNPARSED)

    def _take(self, restoration: Restoration, messages: Sequence[Message]) -> None:
        """Hand over portions of one kind each, states or forgotten keys, in the order in which they came."""
        for is_gone, group in groupby(messages, lambda message: message.value() is None):
            part = list(group)
            keys = [message.key() or b"" for message in part]
            if is_gone:
                self._hand_over(restoration.forgotten(keys, [tombstone_of(headers_of(message)) for message in part]))
                continue
            values = [message.value() or b"" for message in part]
            self._hand_over(restoration.states(keys, values))

    def _last(self, restoration: Restoration, extent: Extent) -> RestoredRows:
        """The last portion. Raises `BadConfiguration` if all states are another model's."""
        try:
            return restoration.last(extent)
        except ValueError as error:
            raise BadConfiguration(
                f"WORKER_KAFKA__CHANGELOG_TOPIC: {self._topic} holds {error}; name another topic for this model"
            ) from None

    def _begin_anew(self, wanted: _Wanted) -> None:
        """Read the partition's whole changelog, without the copy."""
        self._hand_over(RestoredRows(wanted.partition, wanted.attempt, (), None, anew=DOUBTFUL))
        self._drop([wanted.partition.number])
        self._waiting.append(wanted._replace(extent=None))

    def _end_those_done(self) -> None:
        numbers, left = list(self._restores), 0
        for at in self._consumer.position([TopicPartition(self._topic, number) for number in numbers]):
            restore = self._restores[at.partition]
            end = restore.extent.next_offset
            left += end - min(max(at.offset, restore.start), end)
            if at.offset >= end:
                del self._restores[at.partition]
                self._consumer.incremental_unassign([TopicPartition(self._topic, at.partition)])
                self._hand_over(self._last(restore.restoration, restore.extent))
        self.left = left

    def _hand_over(self, item: RestoredRows | Stop) -> None:
        while not self._is_closing.is_set():
            try:
                self._found.put(item, timeout=PUT_SLICE)
            except Full:
                continue
            return


def _lost(partition: Partition, first: int, last: int, reason: str) -> KafkaFatal:
    """The error for states in records that cannot be read."""
    return KafkaFatal(
        f"the changelog {partition} cannot be read from offset {first} to {last}: {reason}; let a broker with a good "
        f"copy lead that partition, or delete its records below offset {last + 1}, and their keys begin anew"
    )
