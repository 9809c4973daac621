"""Counts the worker's events for `/metrics`, and logs them as short facts.

The loop's thread calls it. It owns the numbers, and at most every quarter of a second publishes a new snapshot of them,
which any thread may read. Nothing is logged per record: frequent events are summed up in one line now and then. No
payload and no key is ever logged.
"""

from __future__ import annotations

import platform
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf

from worker.core.chunk import Batch
from worker.core.records import CommitResult, Ending, HostEnd, Partition, Record, Rejection, Standing
from worker.core.stalls import Stall
from worker.core.tensors.buckets import NO_BUCKETS, Buckets, filled
from worker.core.tensors.signature import EDITION_DIGITS, Signature
from worker.telemetry import metrics
from worker.telemetry.logs import RecurringFailure, our_log, printable
from worker.telemetry.metrics import Numbers, Snapshot, since_then
from worker.telemetry.rejections import RecentRejections
from worker.telemetry.watched_parts import HeldPartitions, WatchedParts
from worker.version import VERSION

PUBLISH_EVERY = 0.25  # seconds; a snapshot costs 60 µs with 50 partitions, and scrapes come every few seconds
_ROWS_LOST = (
    "answers before this line may be of other requests; each row runs alone from now on. Set "
    "WORKER_BATCHING__MAX_BATCH_SIZE=1, or export the model with the batch as axis 0 of every output"
)
_APPLIED = "WORKER_STATE__STORE has their states, so they are not run; to run them again, delete the states"
MOST_NAMED = 20  # partitions named in one line


class WorkerEvents:
    """Implements the protocol `Events` for the loop and the delivery, and `HostEvents` for the lanes.

    `latest`, `heartbeat` and `running_since` may be read by any thread.
    """

    def __init__(
        self,
        max_batch_size: int,
        clock: Callable[[], float] = time.monotonic,
        date: Callable[[], float] = time.time,
    ) -> None:
        """`date` gives seconds since the epoch, as publishers stamp their requests."""
        self._clock, self._date = clock, date
        self._log = our_log()
        self._numbers = Numbers()
        self._numbers.set(metrics.BUILD, 1, VERSION, platform.python_version())
        self._numbers.set(metrics.MAX_BATCH_ROWS, max_batch_size)
        self._watched: WatchedParts | None = None
        self._served: Signature | None = None
        self._buckets = NO_BUCKETS
        self._partitions = HeldPartitions()
        self._absent: Sequence[str] = ()  # request topics
        self._uncommitted_since: float | None = None
        self._host: int | None = None  # the process that has the model
        self._is_warm = self._is_in_group = self._is_cut_off = self._is_stopping = self._was_ready = False
        self._rejected = RecentRejections()
        self._failures = defaultdict[str, RecurringFailure](RecurringFailure)  # by the fact that their line states
        self._publish_due = 0.0
        self.heartbeat: float | None = None  # when the last turn of the loop ended
        self.page: str | None = None  # the live page's address, logged when the worker is ready
        self._publish()

    @property
    def latest(self) -> Snapshot:
        """The snapshot published last, with the running inference's age, as that may keep the loop from the next."""
        numbers = {**self._latest.numbers, metrics.RUNNING: since_then(self.running_since)}
        return replace(self._latest, numbers=numbers)

    @property
    def running_since(self) -> float | None:
        """The instant when the oldest inference in a lane began; None when none runs."""
        return self._watched.running_since() if self._watched else None

    # Life

    def noted(self, fact: str, **fields: object) -> None:
        self._log.info(fact, **fields)

    def warned(self, fact: str, **fields: object) -> None:
        self._log.warning(fact, **fields)

    def model_warmed(self, name: str, version: str, device: str, sha256: str = "", **fields: object) -> None:
        """The model is loaded and has run; `device` says on what, and `sha256` which file it is."""
        self._numbers.set(metrics.MODEL, 1, name, version, sha256[:EDITION_DIGITS], device)
        self._is_warm = True
        self._publish()
        self._log.info("model_warmed", model=name, version=version, sha256=sha256, device=device, **fields)

    def serves(self, signature: Signature) -> None:
        """The worker serves requests and answers of this form, which lacks the tensors that are state."""
        self._served = signature
        self._publish()

    def watch(self, parts: WatchedParts) -> None:
        self._watched = parts

    def bounded(
        self, *, lanes: int, batch: int, records: int, rows: int, size: int, run: float, memory: int | None
    ) -> None:
        """The limits: lanes, rows of a batch, what may be in flight, seconds of one inference, the container's memory.

        `size` and `memory` are in bytes. `memory` is None where there is no limit.
        """
        for metric, limit in {
            metrics.LANES: lanes,
            metrics.MAX_BATCH_ROWS: batch,
            metrics.RECORDS_LIMIT: records,
            metrics.ROWS_LIMIT: rows,
            metrics.BYTES_LIMIT: size,
            metrics.RUN_LIMIT: run,
            metrics.MEMORY_LIMIT: memory or 0,
        }.items():
            self._numbers.set(metric, limit)

    def padded(self, buckets: Buckets) -> None:
        """Batches are padded to these buckets: from now on the padding is counted."""
        self._buckets = buckets
        for axis in buckets.axes:
            self._log.info("axis_padded", axis=axis.name, boundaries=axis.boundaries)

    def close(self) -> None:
        """Log what has not been summed up yet, because nothing happens any more."""
        self._sum_up(inf)

    def stopped(self, exit_code: int, reason: str) -> None:
        self.close()  # here too: where the worker hangs, nothing is closed
        log = self._log.error if exit_code else self._log.info
        log("stopped", exit_code=exit_code, reason=reason)

    # Partitions

    def assigned(self, partitions: Sequence[Partition]) -> None:
        self._partitions.add(partitions)
        self._is_in_group = True
        self._rebalanced("assigned")
        self._log.info("partitions_assigned", partitions=_named(partitions), held=len(self._partitions))

    def revoked(self, partitions: Sequence[Partition], seconds: float, unsettled: int) -> None:
        gone = self._gone(partitions, "revoked")
        self._log.info("partitions_revoked", **gone, seconds=round(seconds, 3), unsettled=unsettled)

    def lost(self, partitions: Sequence[Partition], unsettled: int) -> None:
        self._is_in_group = False
        self._log.warning("partitions_lost", **self._gone(partitions, "lost"), unsettled=unsettled)

    def waits_for_schema(self, partition: Partition, schema: str, why: str | None) -> None:
        """The partition has stood for a while, because this schema is not here; `why`: the registry's trouble."""
        self._partitions.waiting.add(partition)
        why = printable(why or "the registry has not answered yet")
        self._log.warning("partition_waits_for_schema", partition=str(partition), schema=schema, why=why)

    def goes_on(self, partition: Partition, seconds: float) -> None:
        """A partition that stood so long for a schema goes on."""
        self._partitions.waiting.discard(partition)
        self._log.info("partition_goes_on", partition=str(partition), stood_s=round(seconds))

    def rewound(self, partitions: Sequence[Partition]) -> None:
        self._partitions.waiting.difference_update(partitions)
        self._log.info("partitions_rewound", partitions=_named(partitions))

    def _gone(self, partitions: Sequence[Partition], event: str) -> dict[str, object]:
        self._partitions.remove(partitions)
        self._rebalanced(event)
        return {"partitions": _named(partitions), "held": len(self._partitions)}

    def _rebalanced(self, event: str) -> None:
        self._numbers.add(metrics.REBALANCES, 1, event)
        self._numbers.set(metrics.PARTITIONS, len(self._partitions))
        self._publish()

    # State by key

    def restored(self, partition: Partition, keys: int, seconds: float) -> None:
        """The states of a partition's keys are here: its requests may come."""
        self._log.info("states_restored", partition=str(partition), states=keys, seconds=round(seconds, 3))

    def store_troubled(self, why: str | None) -> None:
        """The store of states does not answer, for this reason; None: it answers again."""
        if why is None:
            self._log.info("state_store_back")
        else:
            self._log.warning("state_store_away", why=why)

    def store_asked(self, seconds: float) -> None:
        """A round trip to the store of states took so long."""
        self._numbers.observe(metrics.STORE_ROUND_TRIP, seconds)

    def applied_before(self, record: Record, count: int) -> None:
        """So many requests were answered before, as the store says; `record` is the last of them."""
        self._numbers.add(metrics.APPLIED_BEFORE, count)
        self._failures["requests_applied_before"].happened(_APPLIED, record.source, count)

    def thrown_away(self, partition: Partition, why: str) -> None:
        """The kept states of this partition are not used: all of them are read back."""
        self._log.warning("states_thrown_away", partition=str(partition), why=why)

    def foreign_states(self, partition: Partition, count: int) -> None:
        """So many records of its changelog, or values of its keys, are no states of this model, and are ignored."""
        self._numbers.add(metrics.FOREIGN_STATES, count)
        why = "another writer's? A key goes on from an older state, or begins anew"
        self._log.warning("foreign_states_passed_over", partition=str(partition), count=count, why=why)

    def kept(self, states: int, seconds: float) -> None:
        """So many states were left to the next process."""
        self._log.info("states_kept", states=states, seconds=round(seconds, 3))

    def not_kept(self, why: str) -> None:
        self._log.warning("states_not_kept", why=printable(why))

    # The clients, once a second at most

    def consumer_seen(self, connections: int, standings: Mapping[Partition, Standing]) -> None:
        """Open connections to brokers, and the progress of each partition, without what transactions committed."""
        is_cut_off = bool(self._partitions) and not connections
        if connections and self._is_cut_off:
            self._log.info("brokers_reached_again", connections=connections)
        elif is_cut_off and not self._is_cut_off:
            self._log.warning("brokers_out_of_reach")
        self._is_cut_off = is_cut_off
        self._numbers.set(metrics.CONNECTIONS, connections, "consumer")
        self._numbers.replace(metrics.LAG, self._partitions.lag(standings))

    def stalled(self, stalls: Mapping[Partition, Stall]) -> None:
        """These partitions stand still although their logs go on. Called once a second, with all of them."""
        now, before, held = self._clock(), self._partitions.stalls, self._partitions.held
        ours = self._partitions.stalls = {at: stall for at, stall in stalls.items() if at in held}
        for partition in before.keys() - ours.keys():
            stood = round(now - before[partition].since)
            self._log.info("partition_goes_on", partition=str(partition), stood_s=stood)
        for partition in ours.keys() - before.keys():
            stall = ours[partition]
            named = {"partition": str(partition), "offset": stall.offset, "stood_s": round(now - stall.since)}
            self._log.error("partition_stalled", **named, why=stall.reason)
        since = {at: stall.since for at, stall in ours.items()}
        self._numbers.replace(metrics.STALLED, {labels: since.get(p, inf) for p, labels in held.items()})

    def offset_lost(self, partition: Partition, lost: int, first: int) -> None:
        """The next record to read is no longer in the partition's log, which now begins at `first`."""
        if (deleted := first - lost) > 0:
            self._numbers.add(metrics.DELETED, deleted)
            self._log.error("requests_deleted", partition=str(partition), first=lost, last=first - 1, offsets=deleted)
        else:  # beyond the end: the topic was made anew, or its log cut short
            self._log.warning("partition_cut_short", partition=str(partition), lost=lost, first=first)

    def topics_absent(self, topics: Sequence[str]) -> None:
        """The cluster no longer has these request topics; empty: it has all of them."""
        if gone := [topic for topic in topics if topic not in self._absent]:
            self._log.error("request_topics_gone", topics=gone, why="deleted: create them anew, or roll out without")
        if back := [topic for topic in self._absent if topic not in topics]:
            self._log.info("request_topics_back", topics=back)
        self._absent = tuple(topics)
        self._publish()

    def topics_counted(self, partitions: Mapping[str, int]) -> None:
        """Each request topic has so many partitions, as the cluster said last; 0: there is no such topic."""
        self._numbers.replace(metrics.TOPIC_PARTITIONS, {(topic,): count for topic, count in partitions.items()})

    def producer_seen(self, connections: int, undelivered: Mapping[str, int]) -> None:
        self._numbers.set(metrics.CONNECTIONS, connections, "producer")
        self._numbers.replace(metrics.UNDELIVERED, {(topic,): count for topic, count in undelivered.items()})

    def throttled(self, client: str, seconds: float) -> None:
        self._numbers.add(metrics.THROTTLED, seconds, client)

    # Work

    def taken(self, records: int) -> None:
        self._numbers.add(metrics.RECORDS_TAKEN, records)

    def unanswered(self, records: int) -> None:
        self._numbers.add(metrics.RECORDS_PASSED_OVER, records)

    def batch_closed(self, batch: Batch, waited: float) -> None:
        closed_by = batch.closed_by.value
        self._numbers.add(metrics.BATCHES, 1, closed_by)
        self._numbers.add(metrics.BATCH_ROWS, batch.rows, closed_by)
        self._numbers.observe(metrics.BATCH_WAIT, waited)
        if (published := batch.chunks[0].records[0].timestamp_ms) is not None:
            self._numbers.observe(metrics.REQUEST_AGE, max(0.0, self._date() - published / 1000))
        if self._buckets.axes:
            self._count_padding(batch)

    def _count_padding(self, batch: Batch) -> None:
        bucket, (data, padding) = self._buckets.label(batch.shapes), filled(batch)
        self._numbers.add(metrics.BUCKET_BATCHES, 1, bucket)
        self._numbers.add(metrics.BUCKET_ROWS, batch.rows, bucket)
        self._numbers.add(metrics.ELEMENTS, data, bucket, "data")
        self._numbers.add(metrics.ELEMENTS, padding, bucket, "padding")

    def batch_ran(self, rows: int, seconds: float, failure: str | None) -> None:  # noqa: ARG002  # of `Events`
        """An inference of a batch, or of one of the halves of a failed batch, is finished."""
        self._numbers.add(metrics.RUNS, 1, "ok" if failure is None else "failed")
        self._numbers.observe(metrics.INFERENCE, seconds)
        if failure is not None:
            self._failures["inferences_failed"].happened("failed", printable(failure))

    def rejected(self, rejection: Rejection) -> None:
        """A request was rejected. The message quotes it and is for its publisher alone: others read the `reason`."""
        code, source = rejection.code.value, rejection.record.source
        self._numbers.add(metrics.REJECTIONS, 1, code)
        self._rejected.add(code, source, rejection.message, self._date())
        # After that: the watchdog may sum up at any time, and needs the last reason then.
        self._failures["requests_rejected"].happened(code, source)

    def answered_late(self, records: int) -> None:
        self._numbers.add(metrics.LATE, records)

    def device_probed(self, failure: str | None) -> None:
        """The device check: the warm-up batch was run again after failures in a row."""
        self._numbers.add(metrics.PROBES, 1, "ok" if failure is None else "failed")
        if failure is not None:
            self._log.error("device_failed_its_probe", failure=printable(failure))

    def host_started(self, pid: int, seconds: float, why: str) -> None:
        """The process that has the model runs; `why` says whether it is the first, or what happened to the last."""
        self._host = pid
        self._numbers.replace(metrics.HOST_AWAY, {})
        self._publish()
        self._log.info("model_host_started", pid=pid, seconds=round(seconds, 3), why=printable(why))

    def host_ended(self, end: HostEnd, why: str, batches: int) -> None:
        """That process ended while it had so many batches; or one that was to follow it, before it had any."""
        self._numbers.add(metrics.HOSTS_ENDED, 1, end.value)
        if self._host is not None:
            self._numbers.replace(metrics.HOST_AWAY, since_then(self._clock()))
        self._host = None
        self._publish()
        self._log.warning("model_host_ended", reason=end.value, why=printable(why), batches=batches)

    def rows_lost(self, failure: str) -> None:
        """A batch came back with more or fewer rows than went in. From now on each row of the model runs alone."""
        self._log.error("rows_lost", failure=printable(failure), why=_ROWS_LOST)

    def settled(self, taken_at: Mapping[float, int], now: float) -> None:
        """The broker has acknowledged the answers of so many records that were taken at each of these instants."""
        for instant, records in taken_at.items():
            self._numbers.add(metrics.RECORDS_SETTLED, records)
            self._numbers.observe(metrics.END_TO_END, now - instant, records)

    def committed(self, result: CommitResult) -> None:
        if result.committed:
            self._uncommitted_since = None
            self._partitions.committed(result.committed)
        for partition, reason in result.failed.items():
            self._failures["commits_failed"].happened(printable(reason), str(partition))

    def transaction_ended(self, ending: Ending, records: int) -> None:
        """A transaction with the answers to so many records was committed, or taken back, or is in doubt."""
        self._numbers.add(metrics.TRANSACTIONS, 1, "committed" if ending.failure is None else "failed")
        self._numbers.observe(metrics.TRANSACTION_END, ending.seconds)
        if ending.failure is not None:
            self._failures["transactions_failed"].happened(printable(ending.failure), f"{records} records")

    def paused(self, *, is_paused: bool) -> None:
        self._numbers.set(metrics.PAUSED, is_paused)
        self._log.info("fetching_paused" if is_paused else "fetching_resumed")

    # Snapshots

    def turned(self, now: float, in_flight: int) -> None:
        self.heartbeat = now
        if now < self._publish_due:
            return
        self._publish_due = now + PUBLISH_EVERY
        self._numbers.set(metrics.RECORDS_IN_FLIGHT, in_flight)
        self._numbers.set(metrics.LOOP, time.thread_time())
        self._numbers.set(metrics.WAITING_FOR_SCHEMA, len(self._partitions.waiting))
        if self._watched:
            self._read(self._watched, now)
        self._publish()
        self._sum_up(now)

    def _read(self, watched: WatchedParts, now: float) -> None:
        if watched.stop_asked() and not self._is_stopping:
            self._is_stopping = True
            self._log.info("stop_asked", rows_in_flight=watched.ledger.rows)
        watched.read(self._numbers, self._partitions.held, now, self._date())
        if not watched.ledger.committable():
            self._uncommitted_since = None
        elif self._uncommitted_since is None:
            self._uncommitted_since = now
        self._numbers.replace(metrics.COMMIT_LAG, since_then(self._uncommitted_since))

    def _publish(self) -> None:
        phase, unready = self._phase()
        self._numbers.set(metrics.READY, unready is None)
        if unready is None and self._partitions and self.heartbeat is not None and not self._was_ready:
            self._was_ready = True
            self._log.info("ready", held=len(self._partitions), page=self.page)
        self._latest = Snapshot(
            phase=phase,
            unready=unready,
            turned_at=self.heartbeat,
            numbers=self._numbers.copied(),
            histograms=self._numbers.histograms(),
            rejected=self._rejected.each,
            served=self._served,
            host=self._host,
        )

    def _phase(self) -> tuple[str, str | None]:
        """The worker's state in a word, and the reason why it is not ready; None: it is ready."""
        if self._is_stopping:
            return "draining", "stopping"
        if not self._is_warm:
            return "starting", "the model is not loaded yet"
        if not self._is_in_group:
            return "starting", "not in the consumer group yet"
        if self._absent:
            return "topic_gone", f"the cluster has no topic {' and no topic '.join(self._absent)}"
        if self._partitions.all_stalled:
            named = ", ".join(_named([*self._partitions.stalls]))
            return "stalled", f"nothing comes of the partitions held although there is more in them: {named}"
        if self._watched and (awaited := self._watched.awaited()):
            return "restoring" if self._watched.states and self._watched.states.restoring else "starting", awaited
        return "cut_off" if self._is_cut_off else "serving", None

    def _sum_up(self, now: float) -> None:
        for fact, failure in list(self._failures.items()):
            if (fields := failure.summary(now)) is not None:
                if fact == "requests_rejected" and (last := self._rejected.last):
                    fields["why"] = last.reason
                self._log.warning(fact, **fields)


def _named(partitions: Sequence[Partition]) -> list[str]:
    names = [str(partition) for partition in sorted(partitions)[:MOST_NAMED]]
    return names if len(partitions) <= MOST_NAMED else [*names, f"and {len(partitions) - MOST_NAMED} more"]
