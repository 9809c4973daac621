"""Records that the client cannot read: a batch damaged on a broker's disk, or one that unpacks to more than it takes.

The client reports such a batch for ever, or stands there without a word (`core/stalls.py`). So the end of its records
is looked for in a thread (`batch_end.py`). Meanwhile the partition is not fetched, for each fetch unpacks in vain. Then
the records are handed on a few at a time, each in its place, with a reason for which it is answered with an error, and
the client goes on behind the last.

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

# So many of one poll's records at most, so that the others wait no longer than an answer to these takes: 0.1 ms each.
PIECE = 200


@dataclass(slots=True)
class _Spoiled:
    """Records that are given up: from `next` to `last`, which is None while it is looked for."""

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
        self._past: dict[Partition, int] = {}  # nothing below is wanted any more

    def failed(self, partition: Partition, first: int, begun: int, reason: str) -> None:
        """The batch that begins at `first` cannot be read; the group stood at `begun`."""
        if partition in self._spoiled:  # it was on its way when the partition was stopped
            return
        at = max(first, self._wanted_from(partition, begun), self._past.get(partition, 0))
        self._log.tell("unreadable", f"{partition}/{at} cannot be read: {reason}")
        if self._go_to(partition, at):
            self._search(partition, first, at, reason)

    def suspected(self, partition: Partition, at: int) -> None:
        """The partition stands there, and nothing says why. Called in a callback of the client, which only notes it."""
        if partition not in self._spoiled:
            self._suspects[partition] = at

    @property
    def is_waiting(self) -> bool:
        return bool(self._spoiled or self._suspects)

    def share(self, most: int) -> int:
        """How many of a poll's records these may be."""
        return min(PIECE, (most + 2) // 4) if any(map(self._may_give, self._spoiled)) else 0

    def records(self, most: int) -> list[Record]:
        """The records to be handed on now, in order for each partition; a few, for the others' sake."""
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
        """It is not ours any more, or read again from elsewhere."""
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
        """Where the group stands, or the log begins: a group may stand in the middle of a batch, or beyond the end."""
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
        named = self._flowing[partition.topic][partition.number]  # as any record of the client, it may be a stranger
        return [Record(named, at, None, None, (), None, spoiled.reason) for at in range(begin, spoiled.next)]

    def _fetch(self, partition: Partition) -> None:
        """Let the client go on with it."""
        if self._spoiled.pop(partition, None) is not None:
            self._pauses.release(partition, By.SPOILED)

    def _go_to(self, partition: Partition, offset: int) -> bool:
        try:
            self._consumer.seek(TopicPartition(partition.topic, partition.number, offset))
        except KafkaException as error:  # taken from us by the very poll that brought the error
            self._log.tell("seek", f"{partition}/{offset} is left to its next owner: {words_of(error)}")
            return False
        return True
