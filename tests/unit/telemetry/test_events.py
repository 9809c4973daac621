"""The worker's reports: counted in full, logged in moderation, and read back from the page that Prometheus sees."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.chunks import chunk
from tests.logs import capture_logs
from tests.readme import ROOT
from worker.core.chunk import Batch
from worker.core.failures import Code
from worker.core.records import (
    ClosedBy,
    CommitResult,
    Ending,
    HostEnd,
    Ids,
    Partition,
    Record,
    Rejection,
    ReplyForm,
    Standing,
)
from worker.core.stalls import Stall
from worker.core.tensors.buckets import Axis, Buckets, Spot
from worker.telemetry.events import PUBLISH_EVERY, WorkerEvents
from worker.telemetry.logs import SUM_UP_EVERY
from worker.telemetry.metrics import METRICS
from worker.telemetry.metrics_page import PREFIX, MetricsPage
from worker.telemetry.watched_parts import WatchedParts

P0, P1 = Partition("requests", 0), Partition("requests", 1)
Log = list[dict[str, Any]]


@dataclass
class FakeLedger:
    rows: int = 0
    size: int = 0
    oldest: dict[Partition, float] = field(default_factory=dict)
    published: dict[Partition, int] = field(default_factory=dict)
    pending: dict[Partition, int] = field(default_factory=dict)

    def oldest_by_partition(self) -> Mapping[Partition, float]:
        return self.oldest

    def published_by_partition(self) -> Mapping[Partition, int]:
        return self.published

    def committable(self) -> Mapping[Partition, int]:
        return self.pending


@dataclass
class FakeWorker:
    """Gives all that the events ask of a worker's other parts."""

    running_since: float | None = None
    linger: float = 0.005
    stop_asked: bool = False
    waiting: int = 0
    starts_awaited: int = 0
    registry_away_since: float | None = None

    def parts(self, ledger: Any, states: Any = None) -> WatchedParts:
        return WatchedParts(
            ledger,
            states,
            running_since=lambda: self.running_since,
            linger=lambda: self.linger,
            stop_asked=lambda: self.stop_asked,
            waiting_for_key=lambda: self.waiting,
            store_away_since=lambda: None,
            starts_awaited=lambda: self.starts_awaited,
            registry_away_since=lambda: self.registry_away_since,
        )


class Watched:
    """Events with the test's clock, and the page as {sample: value}."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.events = WorkerEvents(32, lambda: self.now, lambda: self.date)
        self.ledger, self.worker = FakeLedger(), FakeWorker()
        self.events.watch(self.worker.parts(self.ledger))
        self._page = MetricsPage(lambda: self.events.latest, lambda: self.now)

    @property
    def date(self) -> float:
        """Seconds since the epoch, by this machine's clock."""
        return 1_000_000.0 + self.now

    def turn(self, seconds: float = PUBLISH_EVERY, in_flight: int = 0) -> None:
        self.now += seconds
        self.events.turned(self.now, in_flight)

    def page(self) -> dict[str, float]:
        body, _ = self._page.render()
        return {
            sample.name.removeprefix(PREFIX) + "".join(f" {v}" for v in sample.labels.values()): sample.value
            for family in text_string_to_metric_families(body.decode())
            for sample in family.samples
        }

    def ready(self) -> None:
        self.events.model_warmed("digits", "1", "cpu")
        self.events.assigned([P0, P1])


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.fixture
def log() -> Iterator[Log]:
    with capture_logs() as lines:
        yield lines


def batch(rows: int, closed_by: ClosedBy = ClosedBy.SIZE, published_at: float | None = None) -> Batch:
    """A batch whose first request was published at `published_at`, in seconds since the epoch."""
    timestamp = None if published_at is None else int(published_at * 1000)
    first = chunk(rows=rows, records=[Record(P0, 0, None, b"", (), timestamp)])
    return Batch([first], {"x": np.zeros((rows, 1))}, rows, closed_by)


def rejection(offset: int = 0, code: Code = Code.INVALID_ARGUMENT) -> Rejection:
    record = Record(P0, offset, b"a-key", b"a-value", (), None)
    return Rejection(record, code, "expected FP32, got 'a-value'", ReplyForm("application/json"), Ids("an-id"))


def stall(partition_since: float = 0.0, *, is_transaction: bool = False) -> Stall:
    return Stall(13, partition_since, is_transaction=is_transaction)


# Counted


def test_every_declared_metric_is_on_the_page_from_the_start(watched: Watched) -> None:
    """Metrics of partitions, topics and buckets appear when these do."""
    watched.events.model_warmed("digits", "1", "cpu")
    names = " ".join(watched.page())

    missing = {metric.name for metric in METRICS if metric.name not in names}

    assert missing == {
        *("bucket_batches", "bucket_rows", "elements", "undelivered_messages", "request_topic_partitions"),
        *("oldest_unsettled_seconds", "oldest_request_age_seconds", "consumer_lag", "partition_stalled_seconds"),
    }


def two_batches(watched: Watched) -> None:
    watched.events.batch_closed(batch(32), waited=0.002)
    watched.events.batch_closed(batch(8, ClosedBy.LINGER), waited=0.005)


def three_ages(watched: Watched) -> None:
    """The publisher's clock may be ahead of ours, and a record may have no timestamp."""
    for published_at in (watched.date - 2.0, watched.date + 5.0, None):
        watched.events.batch_closed(batch(1, published_at=published_at), waited=0.001)


def padded(watched: Watched) -> None:
    watched.events.padded(Buckets((Axis("input x axis 1", (4, 8), {Spot(0, 0): 0}),)))
    two = chunk(0, 1, rows=[2, 1], shapes=[((3,),), ((8,),)])
    watched.events.batch_closed(Batch([two], {"x": np.zeros((3, 8))}, 3, ClosedBy.SIZE), waited=0.0)


def answered(watched: Watched) -> None:
    watched.events.taken(3)
    watched.events.batch_ran(2, 0.01, None)
    watched.events.batch_ran(1, 0.02, "Gather: out of data bounds")
    watched.events.device_probed(None)
    watched.events.rejected(rejection())
    watched.events.answered_late(4)
    watched.events.settled({999.9: 3, 999.0: 1}, now=1000.0)


def transactions(watched: Watched) -> None:
    for failure, seconds in ((None, 0.004), (None, 0.006), ("taken back", 0.5)):
        watched.events.transaction_ended(Ending(failure, seconds), records=32)


def clients(watched: Watched) -> None:
    watched.events.assigned([P0])
    watched.events.consumer_seen(2, {P0: Standing(93, 100), P1: Standing(91, 100)})  # the second is not ours
    watched.events.producer_seen(0, {"answers": 3, "rejected": 0})
    watched.events.throttled("producer", 0.5)
    watched.events.throttled("producer", 0.25)
    watched.events.topics_counted({"gone": 4})
    watched.events.topics_counted({"requests": 200})


def bounded(watched: Watched) -> None:
    watched.events.bounded(lanes=2, batch=8, records=100, rows=200, size=300, run=60.0, memory=400)


def hosts(watched: Watched) -> None:
    watched.events.host_started(os.getpid(), 0.5, "the first")
    watched.events.host_ended(HostEnd.CRASH, "SIGSEGV", 2)
    watched.events.host_ended(HostEnd.KILLED, "SIGKILL, at its warm-up", 0)
    watched.now += 3.0


@pytest.mark.parametrize(
    ("happens", "shown"),
    [
        (
            two_batches,
            """batches_total size 1, batches_total linger 1, batches_total drain 0, batch_rows_total size 32,
            batch_rows_total linger 8, max_batch_rows 32, batch_wait_seconds_bucket 0.0025 1,
            batch_wait_seconds_count 2, linger_seconds 0.005""",
        ),
        (three_ages, "request_age_seconds_count 2, request_age_seconds_sum 2"),
        (
            padded,
            "bucket_batches_total 8 1, bucket_rows_total 8 3, elements_total 8 data 14, elements_total 8 padding 10",
        ),
        (
            answered,
            """records_taken_total 3, records_settled_total 4, late_answers_total 4, end_to_end_seconds_count 4,
            end_to_end_seconds_sum 1.3, inference_runs_total ok 1, inference_runs_total failed 1,
            device_probes_total ok 1, inference_seconds_sum 0.03, rejections_total INVALID_ARGUMENT 1,
            rejections_total INTERNAL 0, records_in_flight 1""",
        ),
        (
            transactions,
            """transactions_total committed 2, transactions_total failed 1, transaction_end_seconds_bucket 0.005 1,
            transaction_end_seconds_sum 0.51""",
        ),
        (
            clients,
            """consumer_lag 0 requests 7, undelivered_messages answers 3, undelivered_messages rejected 0,
            broker_connections consumer 2, broker_connections producer 0, throttled_seconds_total producer 0.75,
            throttled_seconds_total consumer 0, request_topic_partitions requests 200""",
        ),
        (
            bounded,
            """lanes 2, max_batch_rows 8, records_in_flight_limit 100, rows_in_flight_limit 200,
            in_flight_limit_bytes 300, inference_timeout_seconds 60, memory_limit_bytes 400""",
        ),
        (
            hosts,
            """model_hosts_ended_total crash 1, model_hosts_ended_total killed 1, model_hosts_ended_total hang 0,
            model_host_away_seconds 3.25""",
        ),
    ],
)
def test_the_page_shows_what_was_told(watched: Watched, happens: Callable[[Watched], None], shown: str) -> None:
    """It is there after the next turn. Another replica's partition, or a topic that is gone, is not shown."""
    happens(watched)
    watched.turn(in_flight=1)

    page = watched.page()

    for name, value in re.findall(r"(\S.*?) ([\d.]+)(?:,|$)", shown):
        assert page[name] == pytest.approx(float(value)), name
    assert not {"consumer_lag 1 requests", "request_topic_partitions gone"} & page.keys()


def test_the_page_shows_what_is_held_and_since_when(watched: Watched) -> None:
    """A stuck partition and a hanging inference show as growing ages."""
    watched.events.assigned([P0, P1])
    watched.ledger.rows, watched.ledger.size = 40, 4096
    watched.ledger.oldest[P0] = 998.0
    watched.ledger.published[P0] = round((watched.date - 60.0) * 1000)
    watched.worker.running_since = 999.0
    watched.turn(1.0)
    watched.now += 2.0

    page = watched.page()

    assert (page["rows_in_flight"], page["in_flight_bytes"], page["partitions"]) == (40, 4096, 2)
    assert page["oldest_unsettled_seconds 0 requests"] == 5.0
    assert page["oldest_request_age_seconds 0 requests"] == pytest.approx(63.0)
    assert page["oldest_unsettled_seconds 1 requests"] == page["oldest_request_age_seconds 1 requests"] == 0.0
    assert page["inference_running_seconds"] == 4.0


def test_the_page_shows_the_process_that_has_the_model_while_it_runs(watched: Watched) -> None:
    """Its memory counts against the container's limit, and is not in the worker's own figures."""
    watched.events.host_started(os.getpid(), 0.5, "the first")
    running = watched.page()
    watched.events.host_ended(HostEnd.KILLED, "SIGKILL", 0)
    gone = watched.page()
    watched.events.host_started(os.getpid(), 0.5, "SIGKILL")

    assert running["model_host_process_resident_memory_bytes"] > 10 << 20
    assert running["model_host_away_seconds"] == watched.page()["model_host_away_seconds"] == 0.0
    assert [name for name in gone if name.startswith("model_host_process")] == []


def test_a_partition_that_went_away_is_no_longer_reported(watched: Watched) -> None:
    """Its new owner reports it."""
    watched.events.assigned([P0, P1])
    watched.turn()
    watched.events.revoked([P0], seconds=0.1, unsettled=3)
    watched.events.lost([P1], 2)
    watched.turn()

    page = watched.page()

    assert not [name for name in page if name.startswith("oldest_unsettled_seconds")]
    assert page["partitions"] == 0
    assert [page[f"rebalances_total {event}"] for event in ("assigned", "revoked", "lost")] == [1, 1, 1]


def test_lag_counts_from_whichever_commit_got_furthest(watched: Watched) -> None:
    """Exactly once, the consumer knows only its own first commit. A partition that came back counts anew."""
    watched.events.assigned([P0])
    watched.events.committed(CommitResult({P0: 98}, {}))
    lags = []
    for standing in (Standing(10, 100), Standing(99, 100), Standing(101, 100)):
        watched.events.consumer_seen(1, {P0: standing})
        watched.turn()
        lags.append(watched.page()["consumer_lag 0 requests"])
    watched.events.revoked([P0], 0.0, 0)
    watched.events.assigned([P0])
    watched.events.consumer_seen(1, {P0: Standing(10, 100)})
    watched.turn()

    assert lags == [2, 1, 0]
    assert watched.page()["consumer_lag 0 requests"] == 90


def test_commit_lag_counts_from_the_last_commit_that_got_through(watched: Watched) -> None:
    """There is none while nothing is to be committed, and none after its partition left."""
    lags = []
    for pending, committed in [({}, {}), ({P0: 1}, {}), ({P0: 2}, {}), ({P0: 3}, {P0: 2}), ({}, {}), ({P1: 7}, {})]:
        watched.ledger.pending = dict(pending)
        if committed:
            watched.events.committed(CommitResult(committed, {}))
        watched.turn(1.0)
        lags.append(watched.page()["commit_lag_seconds"])

    assert lags == [0.0, 0.0, 1.0, 0.0, 0.0, 0.0]


def test_snapshots_are_published_now_and_then_and_the_heartbeat_at_once(watched: Watched) -> None:
    """A turn may take only a hundred microseconds."""
    watched.turn()
    first = watched.events.latest
    watched.turn(PUBLISH_EVERY / 10)

    assert watched.events.latest == first
    assert watched.events.heartbeat == watched.now
    watched.turn()
    assert watched.events.latest.turned_at == watched.now


# Ready, or not


def test_ready_means_warm_and_in_the_group_and_not_stopping(watched: Watched) -> None:
    """The wish to stop is seen with the next snapshot, all else at once."""
    events, said = watched.events, []
    said.append(events.latest.unready)
    events.assigned([])
    said.append(events.latest.unready)
    events.model_warmed("digits", "1", "cpu")
    said.append(events.latest.unready)
    events.lost([P0], 0)
    said.append(events.latest.unready)
    events.assigned([P0])
    watched.worker.stop_asked = True
    watched.turn()
    said.append(events.latest.unready)

    loading = "the model is not loaded yet"
    assert said == [loading, loading, None, "not in the consumer group yet", "stopping"]


def test_a_worker_says_once_that_it_is_ready(watched: Watched, log: Log) -> None:
    """It says so when it turns and has partitions, with the live page's address."""
    watched.events.page = "http://127.0.0.1:1/"
    watched.events.model_warmed("digits", "1", "cpu")
    watched.events.assigned([])
    watched.turn()
    assert not [line for line in log if line["event"] == "ready"]

    for _ in range(2):
        watched.events.assigned([P0])
        watched.turn()
        watched.events.lost([P0], 0)

    [line] = [line for line in log if line["event"] == "ready"]
    assert (line["held"], line["page"]) == (1, "http://127.0.0.1:1/")


def test_a_worker_without_one_of_its_request_topics_is_not_ready(watched: Watched, log: Log) -> None:
    """It reports each missing topic once, at once, and is ready again when the topic is back."""
    watched.ready()

    watched.events.topics_absent(["orders"])
    watched.events.topics_absent(["backfill", "orders"])
    unready, page = watched.events.latest.unready, watched.page()
    watched.events.topics_absent([])

    assert unready == "the cluster has no topic backfill and no topic orders"
    assert page["ready"] == 0
    assert watched.events.latest.unready is None
    told = [(line["event"], line["topics"]) for line in log if line["event"].startswith("request_topics")]
    assert told == [
        ("request_topics_gone", ["orders"]),
        ("request_topics_gone", ["backfill"]),
        ("request_topics_back", ["backfill", "orders"]),
    ]


def test_the_runbook_has_each_reason_for_which_a_worker_is_not_ready(watched: Watched) -> None:
    """The runbook's lines match what `/readyz` says, except for names and numbers."""
    events = watched.events
    states = SimpleNamespace(keys=0, size=0, loads=0, restoring=2, left_to_restore=70)
    watched.worker.starts_awaited = 4
    events.watch(watched.worker.parts(watched.ledger, states))
    said = [events.latest.unready]
    events.model_warmed("digits", "1", "cpu")
    said.append(events.latest.unready)
    events.assigned([P0])
    said.append(events.latest.unready)
    watched.worker.starts_awaited = 0
    watched.turn()
    said.append(events.latest.unready)
    events.stalled({P0: stall()})
    watched.turn()
    said.append(events.latest.unready)
    events.topics_absent(["orders"])
    said.append(events.latest.unready)
    watched.worker.stop_asked = True
    watched.turn()
    said.append(events.latest.unready)

    runbook = (ROOT / "deploy" / "README.md").read_text(encoding="utf-8")
    section = runbook.partition("### InferenceWorkerNotReady\n")[2].partition("\n### ")[0]
    known = [re.escape(reason).replace("…", ".+") for reason in re.findall(r"^- `(.+?)`", section, re.MULTILINE)]
    assert [reason for reason in said if not any(re.match(each, reason or "") for each in known)] == []
    assert len(known) == len(said)


# Logged


def test_an_outage_has_a_beginning_and_an_end_in_the_log(watched: Watched, log: Log) -> None:
    """Each gets one line, however often the client reports it. A worker that holds nothing yet is not cut off."""
    watched.events.consumer_seen(0, {})
    watched.events.assigned([P0])

    for connections in (1, 0, 0, 2, 2):
        watched.events.consumer_seen(connections, {})

    told = [line["event"] for line in log if line["event"].startswith("brokers")]
    assert told == ["brokers_out_of_reach", "brokers_reached_again"]


def test_a_partition_that_stands_still_is_told_at_once_and_when_it_goes_on(watched: Watched, log: Log) -> None:
    """The line has its offset, the page its age. A partition that moved away is not ours to report."""
    stalls = {P0: stall(watched.now - 30), P1: stall(watched.now, is_transaction=True)}
    watched.events.assigned([P0])

    for _ in range(301):
        watched.events.stalled(stalls)
        watched.turn(1.0)
    shown = watched.page()
    watched.events.stalled({})
    watched.turn()

    told = [(line["event"], line["log_level"], line["stood_s"]) for line in log if "stood_s" in line]
    assert told == [
        ("partition_stalled", "error", 30),
        ("partition_goes_on", "info", 331),
    ]
    assert [line["offset"] for line in log if line["event"] == "partition_stalled"] == [13]
    assert shown["partition_stalled_seconds 0 requests"] == 331
    assert "partition_stalled_seconds 1 requests" not in shown
    assert watched.page()["partition_stalled_seconds 0 requests"] == 0.0


def test_a_partition_that_waits_for_a_schema_is_counted_until_it_goes_on(watched: Watched, log: Log) -> None:
    """The lines say why and for how long; one that moved away, or is read again, counts no more."""
    watched.events.assigned([P0, P1])
    watched.worker.registry_away_since = watched.now - 30

    watched.events.waits_for_schema(P0, "17", "connection refused")
    watched.events.waits_for_schema(P1, "18", None)
    watched.turn()
    both = watched.page()
    watched.events.goes_on(P0, 12.3)
    watched.events.rewound([P1])
    watched.worker.registry_away_since = None
    watched.turn()
    none = watched.page()
    watched.events.waits_for_schema(P1, "18", None)
    watched.events.revoked([P1], 0.1, 0)
    watched.turn()

    assert (both["partitions_waiting_for_schema"], both["registry_away_seconds"]) == (2, 30 + PUBLISH_EVERY)
    assert (none["partitions_waiting_for_schema"], none["registry_away_seconds"]) == (0, 0)
    assert watched.page()["partitions_waiting_for_schema"] == 0
    said = [line for line in log if line["event"] == "partition_waits_for_schema"]
    assert [(line["partition"], line["schema"], line["why"]) for line in said] == [
        (str(P0), "17", "connection refused"),
        (str(P1), "18", "the registry has not answered yet"),
        (str(P1), "18", "the registry has not answered yet"),
    ]
    assert [line["stood_s"] for line in log if line["event"] == "partition_goes_on"] == [12]


def test_requests_that_were_deleted_before_they_were_read_are_counted(watched: Watched, log: Log) -> None:
    """A log that was cut short, or begun anew, lost no request that was still to be read."""
    watched.events.offset_lost(P0, lost=20, first=60)
    watched.events.offset_lost(P1, lost=60, first=0)
    watched.turn()

    assert watched.page()["requests_deleted_total"] == 40
    assert [line["event"] for line in log] == ["requests_deleted", "partition_cut_short"]
    assert (log[0]["first"], log[0]["last"], log[0]["offsets"]) == (20, 59, 40)


def test_a_crowd_of_failures_is_one_line_now_and_then(watched: Watched, log: Log) -> None:
    """The first is logged at once, the rest are summed up; the reason quotes nothing."""
    for offset in range(3):
        watched.events.rejected(rejection(offset))
    watched.turn()
    for offset in range(100):
        watched.events.rejected(rejection(offset, Code.NOT_FOUND))
        watched.turn(0.01)
    watched.turn(SUM_UP_EVERY)
    watched.turn(SUM_UP_EVERY)

    assert [(line["event"], line["count"], line["reasons"], line["last"]) for line in log] == [
        ("requests_rejected", 3, {"INVALID_ARGUMENT": 3}, "requests/0/2"),
        ("requests_rejected", 100, {"NOT_FOUND": 100}, "requests/0/99"),
    ]
    assert {line["why"] for line in log} == {"expected FP32, got '…'"}
    assert "a-value" not in repr(log)
    assert "a-key" not in repr(log)


def test_failures_that_are_not_summed_up_yet_are_told_at_the_end(watched: Watched, log: Log) -> None:
    """Each is logged once, before the last line."""
    watched.events.rejected(rejection(1))
    watched.turn()
    for offset in range(2, 9):
        watched.events.rejected(rejection(offset))
    watched.events.committed(CommitResult({}, {P1: "no coordinator"}))
    watched.events.transaction_ended(Ending("the coordinator is away", 0.01), records=7)

    watched.events.close()
    watched.events.stopped(0, "asked to")

    assert [(line["event"], line.get("count"), line.get("last")) for line in log] == [
        ("requests_rejected", 1, "requests/0/1"),
        ("requests_rejected", 7, "requests/0/8"),
        ("commits_failed", 1, "requests/1"),
        ("transactions_failed", 1, "7 records"),
        ("stopped", None, None),
    ]


def test_nothing_per_batch_or_record_is_logged(watched: Watched, log: Log) -> None:
    """A busy worker is quiet."""
    for _ in range(10):
        watched.events.taken(1)
        watched.events.batch_closed(batch(1), 0.0)
        watched.events.batch_ran(1, 0.1, None)
        watched.events.settled({watched.now: 1}, watched.now)
        watched.events.committed(CommitResult({P0: 1}, {}))
        watched.events.transaction_ended(Ending(None, 0.005), records=1)
        watched.events.device_probed(None)
        watched.turn()

    assert log == []


def test_what_an_operator_would_tell_is_logged(watched: Watched, log: Log) -> None:
    """Partitions are named, at most twenty of them. A stop with a failure is an error."""
    events = watched.events
    events.assigned([Partition("t", n) for n in range(25)])
    events.revoked([P0], 0.1234567, 2)
    events.lost([P1], 2)
    events.rewound([P0])
    events.paused(is_paused=True)
    events.paused(is_paused=False)
    events.device_probed("CUDA failure 2")
    events.host_started(17, 0.1234567, "the first")
    events.host_ended(HostEnd.HANG, "a run took longer than 10 s", 2)
    events.rows_lost("output y: 4 rows went in, shape (3,) came out")
    events.restored(P0, 12, 0.5)
    events.store_troubled("refused")
    events.store_troubled(None)
    events.foreign_states(P0, 2)
    events.thrown_away(P0, "another model's")
    events.kept(12, 0.1)
    events.not_kept("the disk is full")
    events.noted("http_listening", url="http://127.0.0.1:1")
    events.warned("plaintext")
    events.stopped(0, "asked to")
    events.stopped(5, "the device is lost")

    assert " ".join(f"{line['event']}:{line['log_level']}" for line in log).split() == [
        *("partitions_assigned:info", "partitions_revoked:info", "partitions_lost:warning", "partitions_rewound:info"),
        *("fetching_paused:info", "fetching_resumed:info"),
        *("device_failed_its_probe:error", "model_host_started:info", "model_host_ended:warning", "rows_lost:error"),
        *("states_restored:info", "state_store_away:warning"),
        *("state_store_back:info", "foreign_states_passed_over:warning", "states_thrown_away:warning"),
        *("states_kept:info", "states_not_kept:warning", "http_listening:info", "plaintext:warning"),
        *("stopped:info", "stopped:error"),
    ]
    assert log[0]["partitions"][-2:] == ["t/19", "and 5 more"]
    assert (log[1]["seconds"], log[1]["unsettled"]) == (0.123, 2)
