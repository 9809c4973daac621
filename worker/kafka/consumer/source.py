"""Where requests come from: one consumer in a group, polled by the loop's thread alone.

Owns the consumer, and the parts that are made anew with it; never decides how far the group has come. Never raises out
of a callback of the client: an exception there silently skips the batch that was being fetched (27 of 27, measured
2026). Callbacks record what went wrong, and the `poll` they ran in raises it; its records come again.
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
from worker.kafka.consumer.flow import By, Flowing, HeldRecords, Pauses, partition_of, to_records
from worker.kafka.consumer.gates import Gates
from worker.kafka.consumer.rebalances import Rebalances
from worker.kafka.consumer.reports import Reports, RequestTopics, TopicsSeen
from worker.kafka.consumer.spoiled_batches import SpoiledBatches
from worker.kafka.offsets.group_offsets import KafkaOffsets
from worker.ports import Assignments
from worker.settings import KafkaSettings

# Seconds: one look whether a group that is left has taken its partitions, and then for the client to say so.
LEAVE_SLICE, LEAVE_GRACE = 0.05, 0.3


class KafkaSource(KafkaOffsets):
    """The consumer of the request topics: a `Source` with `Offsets` and `IsolationNotes`, as `ports.py` says."""

    def __init__(
        self,
        kafka: KafkaSettings,
        membership: Membership,
        logger: logging.Logger,
        watcher: ClientWatcher | None = None,
        clock: Callable[[], float] = time.monotonic,
        most_partitions: int | None = None,
    ) -> None:
        """`watcher` hears how far behind we are. More than `most_partitions` end us: keys left their states."""
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
        """At most `max_records`; see `Source`. Raises `KafkaFatal` when group, topics or broker are closed for good."""
        if self._gates.is_waiting:
            self._attend()
        # Callbacks run in a read alone, and a loop that is full takes one record a glance: read with some ready too.
        has_ready = bool(self._held.ready)
        most, patience = (1, 0.0) if has_ready else (max_records, self._gates.patience(timeout))
        if share := self._spoiled.share(most):
            most, patience = most - share, 0.0
        records = self._read(most, patience)
        if self._spoiled.is_waiting:
            records = [*records, *self._spoiled.records((1 if has_ready else max_records) - len(records))]
        if self._flowing.strangers:
            records = self._gates.admit(records)
        if has_ready:
            records = self._held.behind(records, max_records)
        if self._rebalances.is_new:  # not in the callback, which comes before the client has the new partitions
            self._rebalances.is_new = False
            self._pauses.settle()
        if self._gates.is_waiting:
            self._attend()
            records = [*records, *self._held.take(max_records - len(records))]
        return records

    def pause(self) -> None:
        self._pauses.is_general = True
        self._pauses.settle()

    def resume(self) -> None:
        """Fetch again all that is not withheld."""
        self._pauses.is_general = False
        self._pauses.settle()

    def rewind(self, partitions: Sequence[Partition]) -> None:
        self._gates.rewind(partitions)

    def withhold(self, partition: Partition) -> None:
        if self._gates.holds(partition):
            self._pauses.stop(partition, By.LOOP)

    def release(self, partition: Partition) -> None:
        self._pauses.release(partition, By.LOOP)

    @property
    def places_awaited(self) -> int:
        """How many of our partitions have no place to begin at yet: under `latest` alone."""
        return len(self._gates.placeless)

    def positions(self) -> Mapping[Partition, int]:
        """The client's next offsets where nothing waits here; unknown after an assignment or a seek. See `Offsets`."""
        at_rest = [partition for partition in self._gates.at_rest() if not self._spoiled.holds(partition)]
        try:
            found = self._consumer.position([TopicPartition(*partition) for partition in at_rest])
        except (KafkaException, RuntimeError):  # in the middle of a rebalance
            return {}
        if self._rebalances.is_over:
            return {}
        return {self._flowing.named(at.topic, at.partition): at.offset for at in found if at.offset >= 0}

    def member(self) -> Any:
        """Who we are in the group at this moment, as a transactional producer takes it."""
        return self._consumer.consumer_group_metadata()

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        if not self._rebalances.is_over:
            super().commit(offsets)

    def close(self) -> None:
        """Leave the group: 3 s (classic) or 42 s (KIP-848) with a commit under way and no coordinator (2026)."""
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
        """Leave the group while the loop's thread hangs, or turns in vain: on a thread of the watchdog's.

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
        """Whether the client ends without a word: a classic member without a partition does; its group waits 45 s."""
        is_dynamic_classic = self.membership.protocol == "classic" and self._kafka.group_instance_id is None
        return is_dynamic_classic and not self._consumer.assignment()

    def _open(self) -> None:
        """A consumer, and all that holds on to it."""
        self._consumer = consumer = self._new_consumer()
        super().__init__(consumer, self._log, self._clock)
        self._pauses, self._held = Pauses(consumer), HeldRecords()
        self._stalls = Stalls()
        self._spoiled = SpoiledBatches(consumer, self._flowing, self._pauses, self._new_looker, self._log)
        self._gates = Gates(
            consumer,
            self._flowing,
            self._held,
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
        """A client that never joins the group, and logs nothing: the consumer does."""
        return Consumer({**consumer_config(self._kafka, self.membership), "statistics.interval.ms": 0, "log_level": 0})

    def _new_looker(self, callbacks: Mapping[str, Any]) -> Consumer:
        return Consumer({**looking(consumer_config(self._kafka, self.membership)), **callbacks})

    def _read(self, max_records: int, timeout: float) -> Sequence[Record]:
        """The client's records, of partitions that are ours after its callbacks."""
        if self._is_to_rejoin:
            self._is_to_rejoin = False
            self._rebalances.rejoin(self._consumer)
        try:
            messages = self._fetch(max_records, timeout)
        except (KafkaException, RuntimeError, SystemError) as error:
            raise KafkaFatal(f"the consumer failed: {words_of(error)}; start again") from (self._failure or error)
        self._raise_failure()
        if self._rebalances.is_over:  # `leave` may have dropped earlier ones
            return ()
        records: Sequence[Record] = to_records(messages, self._flowing)
        if len(records) < len(messages):
            records = self._sift(messages, records)
        if taken_away := self._rebalances.taken_away:
            records = [record for record in records if record.partition not in taken_away]
        return records

    def _fetch(self, max_records: int, timeout: float) -> list[Message]:
        """`consume` alone would wait its full time for `max_records`; `poll` returns with the first record.

        What `poll` returns has come after all the callbacks that it served. A `consume` may serve one between two
        records: `taken_away` names the partitions of the earlier ones.
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
        """The records that may be handed on, where errors came between them. Raises `KafkaFatal`."""
        sifted: list[Record] = []
        moved: set[Partition] = set()  # by a seek of ours: what came behind the error comes again
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
        """An error is ours to stop for, or the client's to get over."""
        refused = refusal(error)
        if refused is None:
            self._log.tell(error.name(), f"{error.name()}: {error.str()}")
        else:
            self._fail(KafkaFatal(refused))

    def _fail(self, error: Exception) -> None:
        """The first one counts: the poll under way raises it."""
        self._failure = self._failure or error

    def _may_fall_back(self) -> bool:
        is_auto = self._kafka.group_protocol == "auto" and self.membership.protocol == "consumer"
        return is_auto and not self._rebalances.was_assigned and self._rebalances.assignments is not None

    def _fall_back(self, said: str) -> None:
        """The broker has no KIP-848. Nothing was assigned yet, so nothing is lost with the first consumer."""
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
        """Tell which partitions stand, and look into each that no open transaction holds back."""
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
        """Hear what a client has heard, this one or the producer: all log in alike. May run in any thread."""
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
        """A request topic may have gone, or be back, or have got partitions.

        A classic group looks at its topics when a member joins, and every 5 minutes: meanwhile it would commit the old
        topic's place in the new one. A KIP-848 group heeds both by itself.
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
