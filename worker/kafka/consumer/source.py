"""The source of requests: one consumer in a group, polled by the loop's thread alone.

It owns the consumer, and the parts that are made anew with it. It never decides how far the group has come. No callback
of the client raises: an exception there silently skips the batch that was being fetched (27 of 27, measured 2026). A
callback keeps the failure, and the `poll` around it raises it; the records of that poll come again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from worker.core.failures import BadConfiguration, KafkaFatal, Stop
from worker.core.records import Partition, Record
from worker.core.stalls import Reach, Stalls
from worker.kafka.client.config import consumer_config
from worker.kafka.client.errors import FATAL, UNREADABLE, ClientLog, configuring, refusal, words_of
from worker.kafka.client.membership import Membership, fall_back
from worker.kafka.client.statistics import ClientWatcher
from worker.kafka.client.stranded import LoginFiles, Stranded
from worker.kafka.consumer.batch_end import looking
from worker.kafka.consumer.flow import Flowing, Pauses, partition_of, to_records
from worker.kafka.consumer.gates import Gates
from worker.kafka.consumer.rebalances import Rebalances
from worker.kafka.consumer.reports import Reports, RequestTopics, TopicsSeen
from worker.kafka.consumer.spoiled_batches import SpoiledBatches
from worker.kafka.offsets.group_offsets import KafkaOffsets
from worker.ports import Assignments
from worker.settings import KafkaSettings

# Seconds of one look whether the group has taken back our partitions, and then for the client to tell the group.
LEAVE_SLICE, LEAVE_GRACE = 0.05, 0.3


class KafkaSource(KafkaOffsets):
    """The consumer of the request topics: a `Source` with `Offsets`, as `ports.py` says."""

    def __init__(
        self,
        kafka: KafkaSettings,
        membership: Membership,
        logger: logging.Logger,
        watcher: ClientWatcher | None = None,
        clock: Callable[[], float] = time.monotonic,
        most_partitions: int | None = None,
    ) -> None:
        """`watcher` hears how far behind we are. A topic over `most_partitions` ends us: keys left their states."""
        self.membership = membership
        self._kafka = kafka
        self._clock = clock
        self._log = ClientLog(logger)
        self._reports = Reports(watcher, self._log, clock)
        self._login_files = LoginFiles([*kafka.secret_files, *kafka.certificates.values()])
        self._stranded = Stranded("consumer", self._new_asking_client, clock)
        self._most_partitions = most_partitions
        self._request_topics = RequestTopics(kafka.request_topics, self._new_asking_client, clock)
        self._is_to_rejoin = False
        self._failure: Exception | None = None
        self._flowing = Flowing()
        self._is_shut_out = False
        self._end = Lock()  # taken once, by the thread that leaves the group
        self._open()

    def subscribe(self, assignments: Assignments) -> None:
        self._rebalances.subscribe(self._consumer, assignments)

    def poll(self, max_records: int, timeout: float) -> Sequence[Record]:
        """At most `max_records`; see `Source`. Raises `KafkaFatal` if group, topics or broker are closed for good."""
        if self._gates.is_waiting:
            self._attend()
        share = self._spoiled.share(max_records)
        records = self._read(max_records - share, 0.0 if share else timeout)
        if self._spoiled.is_waiting:
            records = [*records, *self._spoiled.records(max_records - len(records))]
        if self._flowing.strangers:
            records = self._gates.admit(records)
        if self._rebalances.is_new:  # not in the callback: it runs before the client has the new partitions
            self._rebalances.is_new = False
            self._pauses.settle()
        if self._gates.is_waiting:
            self._attend()
        return records

    def pause(self) -> None:
        self._pauses.is_general = True
        self._pauses.settle()

    def resume(self) -> None:
        """Fetch all partitions again, except those that a part of the source has stopped."""
        self._pauses.is_general = False
        self._pauses.settle()

    def rewind(self, partitions: Sequence[Partition]) -> None:
        self._gates.rewind(partitions)

    def hold(self, partition: Partition, offset: int) -> None:
        self._gates.hold(partition, offset)

    def release(self, partition: Partition) -> None:
        self._gates.release(partition)

    @property
    def starts_awaited(self) -> int:
        return self._gates.starts_awaited

    def positions(self) -> Mapping[Partition, int]:
        """The client's next offsets of partitions at rest; unknown after an assignment or a seek. See `Offsets`."""
        at_rest = [partition for partition in self._gates.at_rest() if not self._spoiled.holds(partition)]
        try:
            found = self._consumer.position([TopicPartition(*partition) for partition in at_rest])
        except (KafkaException, RuntimeError):  # in the middle of a rebalance
            return {}
        if self._rebalances.is_over:
            return {}
        return {self._flowing.named(at.topic, at.partition): at.offset for at in found if at.offset >= 0}

    def member(self) -> Any:
        """Our group metadata of this moment, as a transactional producer takes it."""
        return self._consumer.consumer_group_metadata()

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        if not self._rebalances.is_over:
            super().commit(offsets)

    def close(self) -> None:
        """Leave the group: takes 3 s (classic) or 42 s (KIP-848) with a commit under way and no coordinator (2026)."""
        if self._is_shut_out:  # no broker would hear it, and a KIP-848 member waits for over a minute
            return
        if not self._end.acquire(blocking=False):  # the watchdog leaves for us
            return
        earlier = self._failure  # raised by the poll that found it
        self._request_topics.close()
        self._spoiled.close()
        try:
            if self._leaves_unsaid():
                self._consumer.unsubscribe()
            self._consumer.close()
        except (KafkaException, RuntimeError, SystemError) as error:
            self._log.tell("close", f"the consumer did not leave its group in good order: {words_of(error)}")
        if self._failure is not earlier:
            self._log.tell("close", f"the last rebalance failed: {self._failure}")

    def leave(self) -> None:
        """Leave the group, on a thread of the watchdog's, while the loop's thread hangs or turns in vain.

        From now on the worker hears and gets nothing. The client is not closed: the loop may be in a call to it.
        """
        if self._is_shut_out or not self._end.acquire(blocking=False):
            return
        self._rebalances.is_over = True
        with suppress(KafkaException, RuntimeError, SystemError):
            self._consumer.unsubscribe()
            while self._consumer.assignment():
                self._consumer.poll(LEAVE_SLICE)
            self._consumer.poll(LEAVE_GRACE)

    def _leaves_unsaid(self) -> bool:
        """True for a classic member without partitions: its client ends silently, and the group waits 45 s for it."""
        is_dynamic_classic = self.membership.protocol == "classic" and self._kafka.group_instance_id is None
        return is_dynamic_classic and not self._consumer.assignment()

    def _open(self) -> None:
        """Make a consumer, and all parts that hold on to it."""
        self._consumer = consumer = self._new_consumer()
        super().__init__(consumer, self._log, self._clock)
        self._pauses = Pauses(consumer)
        self._stalls = Stalls()
        self._spoiled = SpoiledBatches(consumer, self._flowing, self._pauses, self._new_looker, self._log)
        self._gates = Gates(
            consumer,
            self._flowing,
            self,
            self._pauses,
            self._spoiled,
            self._log,
            starts_at_end=self._kafka.auto_offset_reset == "latest",
            clock=self._clock,
        )
        self._rebalances = Rebalances(self._kafka, self._flowing, self.standings, self._gates, self._fail, self._log)

    def _new_consumer(self) -> Consumer:
        config = consumer_config(self._kafka, self.membership)
        callbacks = {"on_commit": self._on_commit, "error_cb": self._on_error, "stats_cb": self._on_statistics}
        with configuring("consumer"):
            return Consumer({**config, **callbacks}, logger=self._reports)

    def _new_asking_client(self) -> Consumer:
        """A client that never joins the group, and logs nothing because the consumer does."""
        return Consumer({**consumer_config(self._kafka, self.membership), "statistics.interval.ms": 0, "log_level": 0})

    def _new_looker(self, callbacks: Mapping[str, Any]) -> Consumer:
        return Consumer({**looking(consumer_config(self._kafka, self.membership)), **callbacks})

    def _read(self, max_records: int, timeout: float) -> Sequence[Record]:
        """Read the client's records, only of partitions that are still ours after the callbacks."""
        if self._is_to_rejoin:
            self._is_to_rejoin = False
            self._rebalances.rejoin(self._consumer)
        try:
            messages = self._fetch(max_records, timeout)
        except (KafkaException, RuntimeError, SystemError) as error:
            raise KafkaFatal(f"the consumer failed: {words_of(error)}; start again") from (self._failure or error)
        self._raise_failure()
        if self._rebalances.is_over:  # `leave` may have dropped earlier records
            return ()
        records: Sequence[Record] = to_records(messages, self._flowing)
        if len(records) < len(messages):
            records = self._sift(messages, records)
        if taken_away := self._rebalances.taken_away:
            records = [record for record in records if record.partition not in taken_away]
        return records

    def _fetch(self, max_records: int, timeout: float) -> list[Message]:
        """Wait with `poll`, which returns with the first record: `consume` would wait its full time for `max_records`.

        The record of a `poll` comes after all callbacks that it ran. A `consume` may run a callback between two
        records: then `taken_away` names partitions of earlier records.
        """
        self._rebalances.taken_away.clear()
        messages = self._consumer.consume(max_records, 0)
        if messages or timeout <= 0:
            return messages
        first = self._consumer.poll(timeout)
        if first is None:
            return []
        self._rebalances.taken_away.clear()
        return [first, *self._consumer.consume(max_records - 1, 0)] if max_records > 1 else [first]

    def _raise_failure(self) -> None:
        failure = self._failure
        if isinstance(failure, Stop):
            raise failure
        if failure is not None:
            raise KafkaFatal(f"a callback of the Kafka client failed: {failure!r}") from failure

    def _attend(self) -> None:
        assert self._rebalances.assignments is not None
        self._gates.attend(self._rebalances.assignments)

    # Errors among the records

    def _sift(self, messages: Iterable[Message], records: Iterable[Record]) -> list[Record]:
        """Pick the records to hand on, and treat the errors among the messages. Raises `KafkaFatal`."""
        sifted: list[Record] = []
        moved: set[Partition] = set()  # by a seek of ours: records after the error come again
        coming = iter(records)
        for message in messages:
            if (error := message.error()) is None:
                record = next(coming)
                if record.partition not in moved:
                    sifted.append(record)
            elif error.code() in UNREADABLE:
                partition = partition_of(message, self._flowing)
                if partition not in moved and not self._gates.is_shut(partition):
                    moved.add(partition)
                    begun = self._gates.begun(partition)
                    self._spoiled.failed(partition, message.offset() or 0, begun, error.str())
            elif error.code() == FATAL and self._may_fall_back():
                self._fall_back(error.str())
            else:
                self._hear(error)
                self._raise_failure()
        return sifted

    def _hear(self, error: KafkaError) -> None:
        """Fail on a final error, and log an error from which the client recovers."""
        refused = refusal(error)
        if refused is None:
            self._log.tell(error.name(), f"{error.name()}: {error.str()}")
        else:
            self._fail(KafkaFatal(refused))

    def _fail(self, error: Exception) -> None:
        """Keep the first failure: the poll under way raises it."""
        self._failure = self._failure or error

    def _may_fall_back(self) -> bool:
        is_auto = self._kafka.group_protocol == "auto" and self.membership.protocol == "consumer"
        return is_auto and not self._rebalances.was_assigned and self._rebalances.assignments is not None

    def _fall_back(self, said: str) -> None:
        """Change to the classic protocol. Nothing was assigned yet, so nothing is lost with the first consumer."""
        self.membership = fall_back(said)
        self._log.tell("membership", str(self.membership))
        self._consumer.close()
        assignments = self._rebalances.assignments
        assert assignments is not None
        self._open()
        self.subscribe(assignments)

    # Other callbacks of the client: they run inside `poll` and `close`, and never raise

    def _on_statistics(self, report: str) -> None:
        seen = self._reports.heard(self._consumer, report, self._gates.begun)
        if seen is None:
            return
        self._watch_stalls(seen.reaches)
        if self.membership.protocol == "consumer":
            self._rebalances.coordinator_seen(seen.coordinator)
        if (why := self._stranded.why(seen.brokers)) is not None:
            self._shut_out(f"{why}; start again")
        if (topics := self._request_topics.attend()) is not None:
            self._hear_of_topics(topics)

    def _watch_stalls(self, reaches: Mapping[Partition, Reach]) -> None:
        """Tell the watcher which partitions stand still, and look into each that no open transaction holds back."""
        ours = {
            at: reach if self._pauses.is_fetched(at) else reach._replace(is_fetched=False)
            for at, reach in reaches.items()
            if self._gates.holds(at)
        }
        stalls = self._stalls.seen(ours, self._clock())
        if self._reports.watcher is not None:
            self._reports.watcher.stalled(stalls)
        for partition, stall in stalls.items():
            if stall.is_due:
                self._spoiled.suspected(partition, stall.offset)

    def _on_commit(self, error: KafkaError | None, positions: list[TopicPartition]) -> None:
        for wrong in self.heard(error, positions):
            if refusal(wrong) is not None:
                self._hear(wrong)

    def hear_of_login(self, error: KafkaError) -> None:
        """Hear an error of the consumer or the producer: both log in alike. May run in any thread."""
        if (why := self._login_files.why_refused(error)) is not None:
            self._shut_out(why)

    def _shut_out(self, why: str) -> None:
        self._is_shut_out = True
        self._fail(KafkaFatal(why))

    def _on_error(self, error: KafkaError) -> None:
        self.hear_of_login(error)
        if self._failure is None and error.fatal() and not self._may_fall_back():
            self._hear(error)

    def _hear_of_topics(self, seen: TopicsSeen) -> None:
        """React to request topics that are gone, are back or have more partitions.

        A classic group looks at its topics when a member joins, and every 5 minutes: meanwhile it would commit the old
        topic's offset in the new topic. A KIP-848 group notices both by itself.
        """
        if (watcher := self._reports.watcher) is not None:
            watcher.topics_counted(seen.partitions)
            if seen.absent is not None:
                watcher.topics_absent(sorted(seen.absent))
        if seen.absent is not None and self.membership.protocol == "classic":
            held = {at.topic for at in self._consumer.assignment()}
            self._is_to_rejoin = not held.isdisjoint(seen.absent) or not held.issuperset(seen.back)
        for topic, count in seen.partitions.items():
            if self._most_partitions is not None and count > self._most_partitions:
                why = (
                    f"WORKER_KAFKA__CHANGELOG_TOPIC: {topic} has {count} partitions now, and "
                    f"{self._kafka.changelog_topic} has fewer: keys left their states; stop all workers and move the "
                    "states, as `inference-worker check` says"
                )
                self._fail(BadConfiguration(why))

    def __repr__(self) -> str:
        return f"<KafkaSource {self._kafka.group_id} {self.membership.protocol} paused={self._pauses.is_general}>"
