"""What the worker reports to operators: counted for `/metrics`, and logged as short facts.

Called by the loop's thread. Owns the metrics' values, and publishes a new snapshot of them at most every quarter of a
second, which any thread may read. Logs nothing per record above debug: what happens often is summed up in one line now
and then. No payload and no key is ever logged.
"""

from __future__ import annotations

import platform
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import inf
from operator import attrgetter

import structlog

from worker.core.records import Batch, CommitResult, Ending, Partition, Record, Rejection, Standing, Suspect
from worker.core.stalls import Stall
from worker.core.tensors.buckets import NO_BUCKETS, Buckets, filled
from worker.core.tensors.signature import EDITION_DIGITS, Signature
from worker.telemetry.logs import RecurringFailure, printable
from worker.telemetry.memory_limit import memory_limit
from worker.telemetry.metrics import declared as metrics
from worker.telemetry.metrics.held_partitions import HeldPartitions
from worker.telemetry.metrics.metric_values import STOPPING, Labels, MetricValues, Snapshot
from worker.telemetry.reasons import KEPT_OF_EACH_CODE, RecentRejection
from worker.telemetry.watched_parts import WatchedParts
from worker.version import VERSION

PUBLISH_EVERY = 0.25  # seconds; a snapshot costs 25 µs with 50 partitions, and scrapes come every few seconds
_ROWS_LOST = (
    "this model does not give a row for each that goes in, so which answer is whose was not known: answers given "
    "before may be wrong without an error. From now on each row runs alone, until the worker starts anew. Set "
    "WORKER_BATCHING__MAX_BATCH_SIZE=1, or export the model so that axis 0 of every output is the batch"
)
MOST_NAMED = 20  # partitions named in one line
STALL_AGAIN_AFTER = 300.0  # seconds from one line about a partition that stands still to the next


class WorkerEvents:
    """Satisfies the `Events` of the loop and of the delivery.

    `latest`, `heartbeat` and `running_since` may be read by any thread.
    """

    def __init__(
        self,
        max_batch_size: int,
        clock: Callable[[], float] = time.monotonic,
        date: Callable[[], float] = time.time,
        explained_by: str | None = None,
    ) -> None:
        """`date` is seconds since the epoch, by which publishers stamp their requests. `explained_by`: a command that
        takes a rejected request's place.
        """
        self._max_batch_size = max_batch_size
        self._clock = clock
        self._date = date
        self._explained_by = explained_by
        self._log = structlog.get_logger().bind()
        self._values = MetricValues(metrics.METRICS)
        self._is_stopping = False
        self._passed_over: set[str] = set()
        self._rejections = RecurringFailure("requests_rejected")
        self._rejected: dict[str, deque[RecentRejection]] = {}  # the last ones, by code
        self._failed_runs = RecurringFailure("inferences_failed")
        self._failed_commits = RecurringFailure("commits_failed")
        self._failed_transactions = RecurringFailure("transactions_failed")
        self.begins_anew()

    @property
    def latest(self) -> Snapshot:
        """The last one published, with the age of what runs now: that may be what keeps the loop from the next."""
        since = self.running_since
        ages: Mapping[Labels, float] = {} if since is None else {(): since}
        return replace(self._latest, running_since=since, numbers={**self._latest.numbers, metrics.RUNNING: ages})

    @property
    def running_since(self) -> float | None:
        """When the inference began that runs for longest in a lane."""
        watched = self._watched  # once: the worker may begin anew meanwhile
        return watched.lanes.running_since if watched else None

    # Life

    def noted(self, fact: str, **fields: object) -> None:
        self._log.info(fact, **fields)

    def warned(self, fact: str, **fields: object) -> None:
        self._log.warning(fact, **fields)

    def model_warmed(self, name: str, version: str, device: str, sha256: str = "", **fields: object) -> None:
        """The model is loaded and has run; `device` says on what, and `sha256` which file it is."""
        self._values.set(metrics.MODEL, 1, name, version, sha256[:EDITION_DIGITS], device)
        self._is_warm = True
        self._publish()
        self._log.info("model_warmed", model=name, version=version, sha256=sha256, device=device, **fields)

    def begins_anew(self) -> None:
        """The worker starts, the first time or once more in this process, and holds nothing. What was counted stays."""
        self._values.begin_anew()
        self._values.set(metrics.BUILD, 1, VERSION, platform.python_version())
        self._values.set(metrics.MEMORY_LIMIT, memory_limit() or 0)
        self._watched: WatchedParts | None = None
        self._served: Signature | None = None
        self._buckets = NO_BUCKETS
        self._partitions = HeldPartitions()
        self._applied_told: set[Partition] = set()  # since their assignment
        self._absent: Sequence[str] = ()  # request topics
        self._stall_told_at: dict[Partition, float] = {}
        self._is_warm = self._is_in_group = self._is_cut_off = False
        self._publish_due = 0.0
        self.heartbeat: float | None = None  # when the last turn of the loop ended
        self._publish()

    def serves(self, signature: Signature) -> None:
        """What requests and answers are, without what is state."""
        self._served = signature
        self._publish()

    def watch(self, parts: WatchedParts) -> None:
        self._watched = parts

    def bounded(self, *, lanes: int, batch: int, records: int, rows: int, size: int, run: float) -> None:
        """The lanes, the most rows of a batch, the most that may be in flight (`size` in bytes), the seconds of one
        inference.
        """
        self._max_batch_size = batch
        limits = (metrics.LANES, metrics.RECORDS_LIMIT, metrics.ROWS_LIMIT, metrics.BYTES_LIMIT, metrics.RUN_LIMIT)
        for metric, limit in zip(limits, (lanes, records, rows, size, run), strict=True):
            self._values.set(metric, limit)

    def padded(self, buckets: Buckets) -> None:
        """Batches are padded to these buckets: from now on what that costs is counted."""
        self._buckets = buckets
        for axis in buckets.axes:
            self._log.info("axis_padded", axis=axis.name, boundaries=axis.boundaries)

    def close(self) -> None:
        """Nothing happens any more: tell what has not been summed up yet."""
        self._sum_up(inf)

    def stopped(self, exit_code: int, reason: str) -> None:
        self.close()  # here too: where the worker hangs, nothing is closed
        log = self._log.error if exit_code else self._log.info
        log("stopped", exit_code=exit_code, reason=reason)

    # Partitions

    def assigned(self, partitions: Sequence[Partition]) -> None:
        self._partitions.add(partitions)
        self._applied_told.difference_update(partitions)
        self._is_in_group = True
        self._rebalanced("assigned")
        self._log.info("partitions_assigned", partitions=_named(partitions), held=len(self._partitions))

    def restored(self, partition: Partition, keys: int, seconds: float) -> None:
        """The states of a partition's keys are here: its requests may come."""
        self._values.observe(metrics.RESTORE, seconds)
        self._log.info("states_restored", partition=str(partition), states=keys, seconds=round(seconds, 3))

    def store_troubled(self, why: str | None) -> None:
        """The store of states does not answer, and why; None: it answers again."""
        if why is None:
            self._log.info("state_store_back")
        else:
            self._log.warning("state_store_away", why=why)

    def store_asked(self, seconds: float) -> None:
        """A round trip to the store of states took so long."""
        self._values.observe(metrics.STORE_ROUND_TRIP, seconds)

    def applied_before(self, record: Record, count: int) -> None:
        """So many requests were answered before, by what the store says; this is the last of them."""
        self._values.add(metrics.APPLIED_BEFORE, count)
        if record.partition not in self._applied_told:
            self._applied_told.add(record.partition)
            self._log.warning(
                "requests_applied_before",
                source=record.source,
                why="they are in the states in WORKER_STATE__STORE, so they are answered; if they were to run again, "
                "delete the states first",
            )

    def thrown_away(self, partition: Partition, why: str) -> None:
        """What was kept of the states of this partition is not used: all of them are read back."""
        self._log.warning("states_thrown_away", partition=str(partition), why=why)

    def foreign_states(self, partition: Partition, count: int, first: int | None) -> None:
        """So many records of its changelog are no states of this model, the first at this offset: they do not count."""
        self._values.add(metrics.FOREIGN_STATES, count)
        self._log.warning(
            "foreign_states_passed_over",
            partition=str(partition),
            count=count,
            first=first,
            why="these records of the changelog partition of that number are no states of this model: who else may "
            "write there? A key whose state was overwritten so goes on from an earlier one, or begins anew",
        )

    def foreign_values(self, count: int) -> None:
        """So many values in the store are no states: the requests that asked for them are refused, and say so."""
        self._values.add(metrics.FOREIGN_STATES, count)

    def kept(self, states: int, seconds: float) -> None:
        """So many states were left to the next process."""
        self._log.info("states_kept", states=states, seconds=round(seconds, 3))

    def not_kept(self, why: str) -> None:
        self._log.warning("states_not_kept", why=printable(why))

    def revoked(self, partitions: Sequence[Partition], seconds: float, unsettled: int) -> None:
        self._gone("revoked", partitions, unsettled)
        self._log.info(
            "partitions_revoked",
            partitions=_named(partitions),
            held=len(self._partitions),
            seconds=round(seconds, 3),
            unsettled=unsettled,
        )

    def lost(self, partitions: Sequence[Partition], unsettled: int) -> None:
        self._is_in_group = False
        self._gone("lost", partitions, unsettled)
        self._log.warning(
            "partitions_lost", partitions=_named(partitions), held=len(self._partitions), unsettled=unsettled
        )

    def rewound(self, partitions: Sequence[Partition]) -> None:
        self._values.add(metrics.REWINDS, len(partitions))
        self._log.info("partitions_rewound", partitions=_named(partitions))

    def suspected(self, suspects: Sequence[Suspect]) -> None:
        """The records of these run one at a time for a while; a poison record is answered without being run."""
        for suspect in suspects:
            self._partitions.suspect(suspect)
            self._log.warning(
                "partition_suspected",
                partition=str(suspect.partition),
                attempts=suspect.attempts,
                until=suspect.until,
                poison_offset=suspect.poison,
            )

    def _gone(self, event: str, partitions: Sequence[Partition], unsettled: int) -> None:
        self._partitions.remove(partitions)
        self._values.add(metrics.REVOKED_UNSETTLED, unsettled)
        self._rebalanced(event)

    def _rebalanced(self, event: str) -> None:
        self._values.add(metrics.REBALANCES, 1, event)
        self._values.set(metrics.PARTITIONS, len(self._partitions))
        self._publish()

    # The clients, once a second at most

    def consumer_seen(self, connections: int, standings: Mapping[Partition, Standing]) -> None:
        """Open connections to brokers, and how far each partition is, but for what transactions committed."""
        if connections and self._is_cut_off:
            self._log.info("brokers_reached_again", connections=connections)
        elif self._partitions and not connections and not self._is_cut_off:
            self._log.warning("brokers_out_of_reach")
        self._is_cut_off = bool(self._partitions) and not connections
        self._values.set(metrics.CONNECTIONS, connections, "consumer")
        self._values.replace(metrics.LAG, self._partitions.lag(standings))

    def stalled(self, stalls: Mapping[Partition, Stall]) -> None:
        """These stand still although their logs go on. Called once a second, with all of them."""
        now, before = self._clock(), self._partitions.stalls
        ours = self._partitions.stalls = {at: stall for at, stall in stalls.items() if at in self._partitions.held}
        self._stall_told_at = {at: told for at, told in self._stall_told_at.items() if at in ours}
        for partition in before.keys() - ours.keys():
            stood = round(now - before[partition].since)
            self._log.info("partition_goes_on", partition=str(partition), stood_s=stood)
        for partition, stall in ours.items():
            if now >= self._stall_told_at.get(partition, -inf) + STALL_AGAIN_AFTER:
                self._stall_told_at[partition] = now
                named = {"partition": str(partition), "offset": stall.offset, "stood_s": round(now - stall.since)}
                self._log.error("partition_stalled", **named, why=stall.reason)
        since = {at: stall.since for at, stall in ours.items()}
        held = self._partitions.held
        self._values.replace(metrics.STALLED, {(p.topic, str(p.number)): since.get(p, inf) for p in held})

    def place_lost(self, partition: Partition, lost: int, first: int) -> None:
        """What was to be read next lies no more in the partition's log, which begins at `first` now."""
        if (deleted := first - lost) > 0:
            self._values.add(metrics.DELETED, deleted)
            self._log.error("requests_deleted", partition=str(partition), first=lost, last=first - 1, offsets=deleted)
        else:  # beyond the end: the topic was made anew, or its log cut short
            self._log.warning("partition_cut_short", partition=str(partition), lost=lost, first=first)

    def topics_absent(self, topics: Sequence[str]) -> None:
        """These request topics the cluster has no more; none: it has all of them."""
        if gone := [topic for topic in topics if topic not in self._absent]:
            self._log.error("request_topics_gone", topics=gone, why="deleted: create them anew, or roll out without")
        if back := [topic for topic in self._absent if topic not in topics]:
            self._log.info("request_topics_back", topics=back)
        self._absent = tuple(topics)
        self._values.set(metrics.TOPICS_ABSENT, len(topics))
        self._publish()

    def topics_counted(self, partitions: Mapping[str, int]) -> None:
        """How many partitions each request topic has, as the cluster said last; 0: there is no such topic."""
        self._values.replace(metrics.TOPIC_PARTITIONS, {(topic,): count for topic, count in partitions.items()})

    def producer_seen(self, connections: int, undelivered: Mapping[str, int]) -> None:
        self._values.set(metrics.CONNECTIONS, connections, "producer")
        self._values.replace(metrics.UNDELIVERED, {(topic,): count for topic, count in undelivered.items()})

    def throttled(self, client: str, seconds: float) -> None:
        self._values.add(metrics.THROTTLED, seconds, client)

    # Work

    def taken(self, records: int) -> None:
        self._values.add(metrics.RECORDS_TAKEN, records)

    def batch_closed(self, batch: Batch, waited: float) -> None:
        closed_by = batch.closed_by.value
        self._values.add(metrics.BATCHES, 1, closed_by)
        self._values.add(metrics.BATCH_ROWS, batch.rows, closed_by)
        self._values.observe(metrics.BATCH_FILL, batch.rows / self._max_batch_size)
        self._values.observe(metrics.BATCH_WAIT, waited)
        if (published := batch.requests[0].record.timestamp_ms) is not None:
            self._values.observe(metrics.REQUEST_AGE, max(0.0, self._date() - published / 1000))
        if self._buckets.axes:
            self._count_padding(batch)
        self._log.debug("batch_closed", rows=batch.rows, by=closed_by, waited_ms=round(waited * 1000, 2))

    def _count_padding(self, batch: Batch) -> None:
        bucket, (data, padding) = self._buckets.label(batch.shapes), filled(batch)
        self._values.add(metrics.BUCKET_BATCHES, 1, bucket)
        self._values.add(metrics.BUCKET_ROWS, batch.rows, bucket)
        self._values.add(metrics.ELEMENTS, data, bucket, "data")
        self._values.add(metrics.ELEMENTS, padding, bucket, "padding")

    def batch_ran(self, rows: int, seconds: float, failure: str | None) -> None:
        """An inference of a batch, or of one of the halves of a failed batch, is finished."""
        self._values.add(metrics.RUNS, 1, "ok" if failure is None else "failed")
        self._values.observe(metrics.INFERENCE, seconds)
        if failure is not None:
            self._failed_runs.happened("failed", printable(failure))
            self._log.debug("batch_failed", rows=rows, failure=printable(failure))

    def rejected(self, rejection: Rejection) -> None:
        """Its message is the publisher's alone, for it quotes what came: others read its `reason`."""
        code, source = rejection.code.value, rejection.record.source
        self._values.add(metrics.REJECTIONS, 1, code)
        self._rejected.setdefault(code, deque(maxlen=KEPT_OF_EACH_CODE)).append(
            RecentRejection(code, source, rejection.message, self._date())
        )
        self._rejections.happened(code, source)  # the watchdog may sum up at any time, and wants the reason then
        request_id = rejection.reply.request_id
        self._log.debug(
            "request_rejected",
            source=source,
            code=code,
            request_id=None if request_id is None else printable(request_id),
        )

    def passed_over(self, record: Record, parameter: str, instead: str) -> None:
        """A request has this parameter, of another server, that means nothing here. Told once of each."""
        if parameter not in self._passed_over:
            self._passed_over.add(parameter)
            self._log.warning("parameter_passed_over", parameter=parameter, source=record.source, why=instead)

    def answered_late(self, records: int) -> None:
        self._values.add(metrics.LATE, records)

    def device_probed(self, failure: str | None) -> None:
        """The device check: the warm-up batch was run again after failures in a row."""
        self._values.add(metrics.PROBES, 1, "ok" if failure is None else "failed")
        if failure is not None:
            self._log.error("device_failed_its_probe", failure=printable(failure))
        else:
            self._log.debug("device_passed_its_probe")

    def rows_lost(self, failure: str) -> None:
        """A batch came back with other rows than went in, and the model's rows run alone from now on."""
        self._log.error("rows_lost", failure=printable(failure), why=_ROWS_LOST)

    def settled(self, taken_at: Mapping[float, int], now: float) -> None:
        """So many records taken at each of those instants have their answers acknowledged by the broker."""
        for instant, records in taken_at.items():
            self._values.add(metrics.RECORDS_SETTLED, records)
            self._values.observe(metrics.END_TO_END, now - instant, records)

    def committed(self, result: CommitResult) -> None:
        self._values.add(metrics.COMMITS, len(result.committed), "ok")
        self._values.add(metrics.COMMITS, len(result.failed), "failed")
        if result.committed:
            if self._watched:
                self._watched.committed()
            self._partitions.committed(result.committed)
        for partition, reason in result.failed.items():
            self._failed_commits.happened(printable(reason), str(partition))

    def transaction_ended(self, ending: Ending, records: int) -> None:
        """A transaction with the answers to so many records was committed, or taken back, or is in doubt."""
        self._values.add(metrics.TRANSACTIONS, 1, "committed" if ending.failure is None else "failed")
        self._values.observe(metrics.TRANSACTION_END, ending.seconds)
        if ending.failure is not None:
            self._failed_transactions.happened(printable(ending.failure), f"{records} records")

    def paused(self, *, is_paused: bool) -> None:
        self._values.add(metrics.PAUSES, is_paused)
        self._values.set(metrics.PAUSED, is_paused)
        self._log.info("fetching_paused" if is_paused else "fetching_resumed")

    def turned(self, now: float, in_flight: int) -> None:
        self.heartbeat = now
        if now < self._publish_due:
            return
        self._publish_due = now + PUBLISH_EVERY
        self._values.set(metrics.RECORDS_IN_FLIGHT, in_flight)
        self._values.set(metrics.HEARTBEAT_AGE, now)
        self._values.set(metrics.SUSPECTS, len(self._partitions.suspects))
        if self._watched:
            self._read(self._watched, now)
        self._publish()
        self._sum_up(now)

    def _read(self, watched: WatchedParts, now: float) -> None:
        if watched.signals.stop_asked and not self._is_stopping:
            self._is_stopping = True
            self._log.info("stop_asked", rows_in_flight=watched.ledger.rows)
        watched.read(self._values, self._partitions.held, now, self._date())

    def _publish(self) -> None:
        unready = self._unready()
        self._values.set(metrics.READY, unready is None)
        rejected = tuple(chain.from_iterable(self._rejected.values()))
        self._latest = Snapshot(
            unready, self.heartbeat, None, self._values.numbers(), self._values.histograms(), rejected, self._served
        )

    def _unready(self) -> str | None:
        if self._is_stopping:
            return STOPPING
        if not self._is_warm:
            return "the model is not loaded yet"
        if not self._is_in_group:
            return "not in the consumer group yet"
        if self._absent:
            return f"the cluster has no topic {' and no topic '.join(self._absent)}"
        if self._partitions.all_stalled:
            named = ", ".join(_named([*self._partitions.stalls]))
            return f"nothing comes of the partitions held although there is more in them: {named}"
        return None if self._watched is None else _awaited(self._watched)

    def _sum_up(self, now: float) -> None:
        for failure in (self._rejections, self._failed_runs, self._failed_commits, self._failed_transactions):
            if (fields := failure.summary(now)) is not None:
                if failure is self._rejections:
                    fields |= self._last_reason()
                self._log.warning(failure.fact, **fields)

    def _last_reason(self) -> dict[str, str]:
        """Of the last rejection, and the command to type next."""
        of_each_code = list(self._rejected.values())  # in one step, for the same reason
        last = max((kept[-1] for kept in of_each_code if kept), key=attrgetter("date"))
        return {"why": last.reason} | ({"next": f"{self._explained_by} {last.source}"} if self._explained_by else {})


def _named(partitions: Sequence[Partition]) -> list[str]:
    names = [str(partition) for partition in sorted(partitions)[:MOST_NAMED]]
    return names if len(partitions) <= MOST_NAMED else [*names, f"and {len(partitions) - MOST_NAMED} more"]


def _awaited(watched: WatchedParts) -> str | None:
    """What Kafka has still to tell before all is served."""
    if (places := watched.places) is not None and (awaited := places.places_awaited):
        return f"where {awaited} partitions begin is not known yet: what comes now may not be read"
    states = watched.states
    if states is None or not states.restoring:
        return None
    return f"the states of {states.restoring} partitions are being read back: about {states.left_to_restore} to go"
