"""Records that the client cannot read: their batch is damaged on a broker's disk, or unpacks to more than it takes.

The client reports such a batch for ever, or stands still silently (`core/stalls.py`). So a thread searches for the end
of its records (`batch_end.py`). Meanwhile the partition is not fetched, because each fetch unpacks in vain. Then the
records are handed on a few at a time, in order, each with the reason for its error answer. The client goes on after the
last one.

    stands or fails ──▶ stopped, where do they end? ──▶ handed on piece by piece ──last─▶ fetched again behind them
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition

from worker.core.records import Partition, Record
from worker.kafka.client.errors import ClientLog, words_of
from worker.kafka.consumer.batch_end import UNPARSED, NewLooker, find_end
from worker.kafka.consumer.flow import By, Flowing, Pauses

# The most of them in one poll: other records wait while these are answered, 0.1 ms each.
PIECE = 200


@dataclass(slots=True)
class _Spoiled:
    """Records that are given up: from `next` to `last`, which is None during the search for it."""

    reason: str
    next: int
    last: int | None
    search: Future[tuple[int, str]] | None = None


class SpoiledBatches:
    """The records that are given up. Owned by the source."""

    def __init__(
        self, consumer: Consumer, flowing: Flowing, pauses: Pauses, new_looker: NewLooker, log: ClientLog
    ) -> None:
        self._consumer = consumer
        self._flowing = flowing
        self._pauses = pauses
        self._new_looker = new_looker
        self._log = log
        self._searches = ThreadPoolExecutor(1, "batch-end")  # one at a time: each unpacks what cannot be read
        self._spoiled: dict[Partition, _Spoiled] = {}
        self._suspects: dict[Partition, int] = {}
        self._past: dict[Partition, int] = {}  # records below this offset are not wanted any more
        self._known: dict[Partition, tuple[range, str]] = {}  # the offsets given up last, and why

    def failed(self, partition: Partition, first: int, begun: int, reason: str) -> None:
        """Give up the batch that begins at `first`, as it cannot be read; the group's offset was `begun`."""
        if partition in self._spoiled:  # this error was on its way when the partition was stopped
            return
        at = max(first, self._wanted_from(partition, begun), self._past.get(partition, 0))
        self._log.tell("unreadable", f"{partition}/{at} cannot be read: {reason}")
        if self._go_to(partition, at):
            self._search(partition, first, at, reason)

    def suspected(self, partition: Partition, at: int) -> None:
        """Note that the partition stands still at `at` without a reason. A callback of the client calls this."""
        if partition not in self._spoiled:
            self._suspects[partition] = at

    def passed(self, partition: Partition, offset: int) -> int:
        """Where the client goes on, if the partition is read again from `offset`: behind records known to be spoiled.

        They are handed on again at once. To find them again takes 30 s, and a transaction that failed because its
        producer was idle for so long would fail each time.
        """
        known, reason = self._known.get(partition, (range(0), ""))
        if offset not in known:
            return offset
        self._pauses.stop(partition, By.SPOILED)
        self._spoiled[partition] = _Spoiled(reason, offset, known[-1])
        self._past[partition] = known[-1] + 1  # the batch may be longer than was found
        return known[-1] + 1

    @property
    def is_waiting(self) -> bool:
        return bool(self._spoiled or self._suspects)

    def share(self, most: int) -> int:
        """The most unreadable records that a poll may hand on."""
        return min(PIECE, (most + 2) // 4) if any(map(self._may_give, self._spoiled)) else 0

    def records(self, most: int) -> list[Record]:
        """The records to be handed on now, in order for each partition; few, so that other records need not wait."""
        while self._suspects:
            partition, at = self._suspects.popitem()
            self._search(partition, None, at, UNPARSED)
        given: list[Record] = []
        for partition, spoiled in list(self._spoiled.items()):
            self._hear(partition, spoiled)
            if partition in self._spoiled and self._may_give(partition):
                given += self._give(partition, spoiled, min(PIECE, most) - len(given))
        return given

    def holds(self, partition: Partition) -> bool:
        return partition in self._spoiled

    def forget(self, partition: Partition) -> None:
        """Forget a partition that is not ours any more."""
        self.rewind(partition)
        self._known.pop(partition, None)

    def rewind(self, partition: Partition) -> None:
        """Give nothing more of a partition that is read again from elsewhere."""
        self._past.pop(partition, None)
        self._suspects.pop(partition, None)
        self._fetch(partition)

    def close(self) -> None:
        self._searches.shutdown(wait=False, cancel_futures=True)

    def _search(self, partition: Partition, first: int | None, at: int, reason: str) -> None:
        self._pauses.stop(partition, By.SPOILED)
        search = self._searches.submit(find_end, self._new_looker, partition, first, at)
        self._spoiled[partition] = _Spoiled(reason, at, None, search)

    def _wanted_from(self, partition: Partition, begun: int) -> int:
        """The group's offset, or the log's beginning if later. That offset may be inside a batch, or beyond the end."""
        try:
            begin, end = self._consumer.get_watermark_offsets(TopicPartition(*partition), cached=True)
        except KafkaException:  # the client knows of no such partition any more, and takes no seek either
            return begun
        return max(begin, begun if begun < end else 0)

    def _may_give(self, partition: Partition) -> bool:
        return self._spoiled[partition].last is not None and self._pauses.is_stopped_only(partition, By.SPOILED)

    def _hear(self, partition: Partition, spoiled: _Spoiled) -> None:
        if spoiled.search is None or not spoiled.search.done():
            return
        at, (last, trouble) = spoiled.next, spoiled.search.result()
        spoiled.search = None
        if trouble:
            self._log.tell("batch-end", f"{partition}: where the records end that cannot be read at {at}: {trouble}")
        if last < at or not self._go_to(partition, last + 1):
            self._fetch(partition)
            return
        spoiled.last, self._past[partition] = last, last + 1
        self._known[partition] = range(at, last + 1), spoiled.reason
        self._log.tell(
            f"unreadable {partition}",
            f"{partition}: the {last + 1 - at} records from {at} to {last}, one batch, cannot be read and are answered "
            f"with errors: {spoiled.reason}",
        )

    def _give(self, partition: Partition, spoiled: _Spoiled, most: int) -> list[Record]:
        assert spoiled.last is not None
        begin, spoiled.next = spoiled.next, min(spoiled.next + most, spoiled.last + 1)
        if spoiled.next > spoiled.last:
            self._fetch(partition)
        named = self._flowing[partition.topic][partition.number]  # a stranger, perhaps, like any record of the client
        return [Record(named, at, None, None, (), None, spoiled.reason) for at in range(begin, spoiled.next)]

    def _fetch(self, partition: Partition) -> None:
        """Let the client fetch the partition again."""
        if self._spoiled.pop(partition, None) is not None:
            self._pauses.release(partition, By.SPOILED)

    def _go_to(self, partition: Partition, offset: int) -> bool:
        try:
            self._consumer.seek(TopicPartition(partition.topic, partition.number, offset))
        except KafkaException as error:  # the poll that brought the error also took the partition from us
            self._log.tell("seek", f"{partition}/{offset} is left to its next owner: {words_of(error)}")
            return False
        return True
