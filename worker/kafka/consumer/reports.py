"""News of the request topics: how far behind we are, which records were deleted unread, which topics are gone.

The client reports on itself once a second. The report omits requests that were deleted unread, the only ones that are
never answered: the client goes on where the reset policy says. Only a line of its log names the offset that it left
(librdkafka 2.16), and not always the offset where it goes on.

The client says little of a deleted topic, and nothing of partitions that no member of the group reads. A KIP-848 group
takes the partitions of a deleted topic away, as in any rebalance. A classic group leaves them: commits are refused, and
an error comes after 25 s (librdkafka 2.16, seen 2026-11). When a topic gets more partitions, keys leave their states as
soon as publishers know of it. So the cluster is asked every few seconds.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from queue import Empty, Queue
from threading import Thread
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from worker.core.records import Partition
from worker.kafka.client.errors import GONE, ClientLog, words_of
from worker.kafka.client.statistics import ClientWatcher, ConsumerStatistics, read_consumer

_LEFT = re.compile(r"(?P<topic>[\w.-]+) \[(?P<number>\d+)\]: offset reset \(at offset (?P<offset>\d+)")

# The loop stands still meanwhile. The broker first answers the fetch before ours: after `fetch.wait.max.ms`, 0.5 s.
ASK_TIMEOUT = 1.0
ASK_AGAIN_AFTER = 10.0
LOOK_EVERY = 2.0  # seconds
LOOK_TIMEOUT = 5.0  # outside the loop: a handshake with a broker far away takes one or two


class Reports:
    """Reads the consumer's statistics, and is the consumer's logger. Owned by the source; outlives one consumer."""

    def __init__(
        self, watcher: ClientWatcher | None, log: ClientLog, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.watcher = watcher
        self._log = log
        self._clock = clock
        self._lost: dict[Partition, int] = {}  # the offset that was left, until the watcher has it
        self._ask_at = 0.0

    def log(self, level: int, template: str, facility: str, client: str, text: str) -> None:
        """Called by the client, in the thread that polls it. Every line is passed on."""
        self._log.log(level, template, facility, client, text)
        if facility == "OFFSET" and (left := _LEFT.search(text)) is not None:
            self._lost.setdefault(Partition(left["topic"], int(left["number"])), int(left["offset"]))

    def heard(self, consumer: Consumer, report: str, begun: Callable[[Partition], int]) -> ConsumerStatistics | None:
        """Tell the watcher. Returns the parsed report, None if it is not understood. Raises nothing.

        `begun`: the group's offset when the partition was assigned. For a partition that comes back, the client still
        has its own last commit, whatever others did meanwhile. An offset beyond the end is of deleted records.
        """
        try:
            seen = read_consumer(report)
            if self.watcher is not None:
                standings = {
                    partition: at._replace(next_offset=max(at.next_offset, begun_at)) if begun_at <= at.end else at
                    for partition, at in seen.standings.items()
                    for begun_at in (begun(partition),)
                }
                self.watcher.consumer_seen(seen.connections, standings)
                self.watcher.throttled("consumer", seen.throttled)
        except Exception as error:  # noqa: BLE001  # no request waits for a number on a page
            self._log.tell("statistics", f"the consumer's statistics are not understood: {error!r}")
            return None
        if self.watcher is not None and self._lost and self._clock() >= self._ask_at:
            self._tell_lost(consumer, self.watcher)
        return seen

    def _tell_lost(self, consumer: Consumer, watcher: ClientWatcher) -> None:
        """Tell the watcher of each offset that was left, and where the log of its partition begins now."""
        found: list[TopicPartition] = []
        try:
            begins = [TopicPartition(*partition, OFFSET_BEGINNING) for partition in self._lost]
            found = consumer.offsets_for_times(begins, ASK_TIMEOUT)
        except (KafkaException, RuntimeError) as error:  # RuntimeError when the consumer is closed
            self._log.tell("begin", f"the broker does not tell where partitions begin: {words_of(error)}")
        for at in found:
            if at.error is None:
                partition = Partition(at.topic, at.partition)
                watcher.offset_lost(partition, self._lost.pop(partition), at.offset)
        self._ask_at = self._clock() + (ASK_AGAIN_AFTER if self._lost else 0.0)


class TopicsSeen(NamedTuple):
    """The partition count of each topic that the cluster told of, and news: topics that are absent, or back."""

    partitions: Mapping[str, int]
    absent: Collection[str] | None = None
    back: Collection[str] = ()


class RequestTopics:
    """Watches whether our request topics exist, and with how many partitions. Used by the loop's thread.

    It asks on a thread of its own, with a client kept for it: on the consumer's connection an answer waits for the
    fetch before it. A topic is absent after two looks: a broker that has just started may not know it yet.
    """

    def __init__(self, topics: Sequence[str], new_client: Callable[[], Consumer], clock: Callable[[], float]) -> None:
        self._topics = topics
        self._new_client = new_client
        self._clock = clock
        self._client: Consumer | None = None
        self._look_at = clock() + LOOK_EVERY  # the start has just looked
        self._is_asking = False
        self._found: Queue[Mapping[str, int]] = Queue()
        self._missed: frozenset[str] = frozenset()  # missing in the last look
        self._absent: frozenset[str] = frozenset()  # missing in the last two

    def attend(self) -> TopicsSeen | None:
        """Return the result of a finished look, if any; begin a look when it is time. To be called once a second."""
        seen = self._hear() if self._is_asking else None
        if not self._is_asking and self._clock() >= self._look_at:
            self._is_asking = True
            in_background(self._ask, "request-topics")
        return seen

    def close(self) -> None:
        if self._client is not None and not self._is_asking:
            self._client.close()

    def _hear(self) -> TopicsSeen | None:
        try:
            found = self._found.get_nowait()
        except Empty:
            return None
        self._is_asking, self._look_at = False, self._clock() + LOOK_EVERY
        if not found:
            return None
        missed = frozenset(topic for topic, partitions in found.items() if not partitions)
        before, self._absent, self._missed = self._absent, missed & self._missed, missed
        return TopicsSeen(found) if self._absent == before else TopicsSeen(found, self._absent, before - self._absent)

    def _ask(self) -> None:
        """Count the partitions of each topic, as far as the cluster tells; of no topic if it does not answer."""
        client: Consumer | None = None
        found: Mapping[str, int] = {}
        try:
            client = self._client or self._new_client()
            counts = {topic: _partitions(client, topic) for topic in self._topics}
            self._client, found = client, {topic: count for topic, count in counts.items() if count is not None}
        except Exception:  # noqa: BLE001  # otherwise no look would ever follow; the next has a new client
            self._client = None
            if client is not None:
                client.close()
        self._found.put(found)


def in_background(work: Callable[[], object], name: str) -> None:
    """Run `work` in a daemon thread: a call that hangs must not keep a process alive that has decided to end."""
    Thread(target=work, name=name, daemon=True).start()


def _partitions(client: Consumer, topic: str) -> int | None:
    """The topic's number of partitions, 0 if there is no such topic; None if the cluster does not say."""
    said = client.list_topics(topic, timeout=LOOK_TIMEOUT).topics[topic]
    if said.error is None:
        return len(said.partitions) or None
    return 0 if said.error.code() in GONE else None
