"""What the worker tells: counted in full, logged in moderation, and read back from the page that Prometheus sees."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from tests.builders import request, signature
from tests.fakes import MODEL
from tests.readme import ROOT
from worker.core.failures import Code
from worker.core.records import (
    Batch,
    ClosedBy,
    CommitResult,
    Ending,
    Partition,
    Record,
    Rejection,
    Reply,
    Request,
    Standing,
    Suspect,
)
from worker.core.stalls import Stall
from worker.core.tensors.buckets import Axis, Buckets, Spot
from worker.telemetry.events import PUBLISH_EVERY, STALL_AGAIN_AFTER, WorkerEvents
from worker.telemetry.logs import SUM_UP_EVERY
from worker.telemetry.metrics.declared import METRICS
from worker.telemetry.metrics.metric_values import MetricKind
from worker.telemetry.metrics.page import PREFIX, MetricsPage
from worker.telemetry.watched_parts import WatchedParts

STANDING = {MetricKind.GAUGE, MetricKind.AGE, MetricKind.INFO}
P0, P1 = Partition("requests", 0), Partition("requests", 1)


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
class FakeLanes:
    running_since: float | None = None


@dataclass
class FakeBatcher:
    linger: float = 0.005


@dataclass
class FakeSignals:
    stop_asked: bool = False


class Watched:
    """Events with a clock that the test turns, and the page as {sample: value}."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.events = WorkerEvents(max_batch_size=32, clock=lambda: self.now, date=lambda: self.date)
        self.ledger, self.lanes, self.signals = FakeLedger(), FakeLanes(), FakeSignals()
        self.batcher = FakeBatcher()
        self.events.watch(WatchedParts(self.ledger, self.lanes, self.batcher, self.signals))
        self._page = MetricsPage(lambda: self.events.latest, lambda: self.now)

    @property
    def date(self) -> float:
        """Seconds since the epoch, by our own clock."""
        return 1_000_000.0 + self.now

    def turn(self, seconds: float = PUBLISH_EVERY, in_flight: int = 0) -> None:
        self.now += seconds
        self.events.turned(self.now, in_flight)

    def page(self) -> dict[str, float]:
        body, _ = self._page.render("")
        return {
            sample.name.removeprefix(PREFIX) + "".join(f" {v}" for v in sample.labels.values()): sample.value
            for family in text_string_to_metric_families(body.decode())
            for sample in family.samples
        }

    def standing(self) -> dict[str, float]:
        """What holds at an instant."""
        names = {metric.name for metric in METRICS if metric.kind in STANDING}
        return {name: value for name, value in self.page().items() if name.split()[0].removesuffix("_info") in names}


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.fixture
def log() -> Iterator[list[Any]]:
    with capture_logs() as lines:
        yield lines


def batch(rows: int, closed_by: ClosedBy = ClosedBy.SIZE, published_at: float | None = None) -> Batch:
    """`published_at`: seconds since the epoch, of its first request."""
    timestamp = None if published_at is None else int(published_at * 1000)
    first = Request(Record(P0, 0, None, b"", (), timestamp), rows, (), (), Reply("raw"), 0, MODEL)
    return Batch((first,), {"x": np.zeros((rows, 1))}, rows, closed_by)


def rejection(offset: int = 0, code: Code = Code.INVALID_ARGUMENT, request_id: str | None = None) -> Rejection:
    record = Record(P0, offset, b"a-key", b"a-value", (), None)
    return Rejection(record, code, "expected FP32, got 'a-value'", Reply("application/json", request_id))


def test_a_worker_that_begins_anew_is_starting(watched: Watched) -> None:
    """It is not ready, and is not held to turn: its model may take minutes to load."""
    watched.events.model_warmed("digits", "1", "cpu")
    watched.events.assigned([P0, P1])
    watched.turn()
    assert watched.page()["ready"] == 1

    watched.events.begins_anew()

    assert watched.events.heartbeat is None
    assert watched.events.running_since is None
    assert watched.page()["ready"] == 0


def test_a_worker_that_begins_anew_shows_nothing_of_before_but_counts() -> None:
    """What it held went with its partitions, and what the next life holds is not known before its model is loaded."""
    watched, fresh = Watched(), Watched()
    events = watched.events
    gone = SimpleNamespace(keys=9, size=900, loads=4, restoring=2, left_to_restore=70, waiting=3, away_since=990.0)
    events.watch(WatchedParts(watched.ledger, watched.lanes, watched.batcher, watched.signals, gone, gone, gone, gone))
    events.model_warmed("digits", "1", "cuda")
    events.serves(signature())
    events.bounded(lanes=2, batch=32, records=100, rows=200, size=300, run=60.0)
    events.assigned([P0, P1])
    events.suspected([Suspect(P0, 3, None, until=50)])
    events.topics_absent(["orders"])
    events.consumer_seen(2, {P0: Standing(93, 100)})
    events.producer_seen(1, {"answers": 3})
    events.paused(is_paused=True)
    events.taken(7)
    watched.ledger.rows, watched.ledger.size = 40, 4096
    watched.ledger.oldest, watched.ledger.pending = {P0: 998.0}, {P0: 5}
    watched.lanes.running_since = 999.0
    watched.turn(in_flight=7)
    watched.now += 1.0
    before = watched.standing()

    events.begins_anew()

    unchanged = {name.split()[0] for name, value in fresh.standing().items() if before[name] == value}
    assert unchanged == {"memory_limit_bytes", "build_info", "ready"}
    assert watched.standing() == fresh.standing()
    assert watched.events.latest.served is None
    assert watched.events.latest.unready == "the model is not loaded yet"
    assert watched.page()["records_taken_total"] == 7


def test_every_declared_metric_is_on_the_page_from_the_start(watched: Watched) -> None:
    """But for partitions, which are not held yet, topics, to which nothing was sent, and buckets without a batch."""
    watched.events.model_warmed("digits", "1", "cpu")
    names = " ".join(watched.page())

    missing = [metric.name for metric in METRICS if metric.name not in names]

    assert missing == [
        *("bucket_batches", "bucket_rows", "elements"),
        *("oldest_unsettled_seconds", "oldest_request_age_seconds", "consumer_lag", "partition_stalled_seconds"),
        *("undelivered_messages", "request_topic_partitions"),
    ]


def test_what_quotas_cost_is_counted_by_client(watched: Watched) -> None:
    """Neither brokers nor clients say so anywhere else."""
    watched.events.throttled("producer", 0.5)
    watched.events.throttled("producer", 0.25)
    watched.turn()

    page = watched.page()
    assert (page["throttled_seconds_total producer"], page["throttled_seconds_total consumer"]) == (0.75, 0)


def test_padding_is_counted_by_bucket(watched: Watched) -> None:
    """Where batches are padded; elsewhere there is nothing to count."""
    buckets = Buckets((Axis("input x axis 1", (4, 8), {Spot(0, 0): 0}),))
    requests = [request(rows=2, shapes=((3,),)), request(shapes=((8,),))]
    watched.events.padded(buckets)

    watched.events.batch_closed(Batch(requests, {"x": np.zeros((3, 8))}, 3, ClosedBy.SIZE), waited=0.0)
    watched.turn()

    page = watched.page()
    assert page["bucket_batches_total 8"] == 1
    assert page["bucket_rows_total 8"] == 3
    assert (page["elements_total 8 data"], page["elements_total 8 padding"]) == (14, 10)


def test_batches_are_counted_by_why_they_closed(watched: Watched) -> None:
    """With their rows, how full they were, and how long they waited."""
    watched.events.batch_closed(batch(32), waited=0.002)
    watched.events.batch_closed(batch(8, ClosedBy.LINGER), waited=0.005)
    watched.turn()

    page = watched.page()

    assert page["batches_total size"] == page["batches_total linger"] == 1
    assert page["batch_rows_total size"] == 32
    assert page["batch_rows_total drain"] == 0
    assert page["batch_fill_ratio_bucket 0.3"] == 1
    assert page["batch_fill_ratio_sum"] == pytest.approx(1.25)
    assert page["batch_wait_seconds_bucket 0.0025"] == 1
    assert page["batch_wait_seconds_count"] == 2


def test_the_linger_in_force_is_shown(watched: Watched) -> None:
    """It may be learned, and change."""
    watched.batcher.linger = 0.003

    watched.turn()

    assert watched.page()["linger_seconds"] == 0.003


def test_the_age_of_a_request_counts_from_its_publication(watched: Watched) -> None:
    """By the publisher's clock, which may be ahead of ours, and where it is known."""
    for published_at in (watched.date - 2.0, watched.date + 5.0, None):
        watched.events.batch_closed(batch(1, published_at=published_at), waited=0.001)
    watched.turn()

    page = watched.page()

    assert page["request_age_seconds_count"] == 2
    assert page["request_age_seconds_sum"] == pytest.approx(2.0)


def test_runs_answers_and_commits_are_counted(watched: Watched) -> None:
    """Failures apart from successes."""
    watched.events.taken(3)
    watched.events.batch_ran(2, 0.01, None)
    watched.events.batch_ran(1, 0.02, "Gather: out of data bounds")
    watched.events.device_probed(None)
    watched.events.rejected(rejection())
    watched.events.answered_late(4)
    watched.events.settled({999.9: 3, 999.0: 1}, now=1000.0)
    watched.events.committed(CommitResult({P0: 5}, {P1: "no coordinator"}))
    watched.turn(in_flight=1)

    page = watched.page()

    assert page["records_taken_total"] == 3
    assert page["records_settled_total"] == page["end_to_end_seconds_count"] == 3 + 1
    assert page["records_in_flight"] == 1
    assert page["inference_runs_total ok"] == page["inference_runs_total failed"] == 1
    assert page["inference_seconds_sum"] == pytest.approx(0.03)
    assert page["device_probes_total ok"] == 1
    assert page["rejections_total INVALID_ARGUMENT"] == 1
    assert page["rejections_total INTERNAL"] == 0
    assert page["late_answers_total"] == 4
    assert page["end_to_end_seconds_sum"] == pytest.approx(3 * 0.1 + 1.0)
    assert page["commits_total ok"] == page["commits_total failed"] == 1


def test_transactions_are_counted_by_how_they_ended(watched: Watched) -> None:
    """With the seconds that it took, and the partitions that are read again."""
    for failure, seconds in ((None, 0.004), (None, 0.006), ("taken back", 0.5)):
        watched.events.transaction_ended(Ending(failure, seconds), records=32)
    watched.events.rewound([P0, P1])
    watched.turn()

    page = watched.page()

    assert page["transactions_total committed"] == 2
    assert page["transactions_total failed"] == 1
    assert page["transaction_end_seconds_bucket 0.005"] == 1
    assert page["transaction_end_seconds_sum"] == pytest.approx(0.51)
    assert page["rewinds_total"] == 2


def test_a_parameter_that_means_nothing_here_is_told_once(watched: Watched, log: list[Any]) -> None:
    """Each name: a publisher that sends it sends it with every request."""
    for offset, name in enumerate(["timeout", "priority", "timeout"]):
        watched.events.passed_over(request(offset).record, name, "use another")

    told = {"event": "parameter_passed_over", "log_level": "warning", "why": "use another"}
    assert log == [
        {**told, "parameter": "timeout", "source": "requests/0/0"},
        {**told, "parameter": "priority", "source": "requests/0/1"},
    ]


def test_requests_that_were_deleted_before_they_were_read_are_counted(watched: Watched, log: list[Any]) -> None:
    """A log that was cut short, or begun anew, lost nothing that was to be read."""
    watched.events.place_lost(P0, lost=20, first=60)
    watched.events.place_lost(P1, lost=60, first=0)
    watched.turn()

    assert watched.page()["requests_deleted_total"] == 40
    assert log == [
        {
            "event": "requests_deleted",
            "log_level": "error",
            "partition": "requests/0",
            "first": 20,
            "last": 59,
            "offsets": 40,
        },
        {"event": "partition_cut_short", "log_level": "warning", "partition": "requests/1", "lost": 60, "first": 0},
    ]


def test_a_suspicion_ends_with_the_commit_of_its_last_record(watched: Watched) -> None:
    """Or with the partition: its next owner has it then."""
    events, seen = watched.events, []
    events.assigned([P0, P1])
    events.suspected([Suspect(P0, 3, None, until=50), Suspect(P1, 4, 7, until=20)])

    for next_offset in (49, 50):
        events.committed(CommitResult({P0: next_offset}, {P1: "no coordinator"}))
        watched.turn()
        seen.append(watched.page()["suspect_partitions"])
    events.lost([P1], 2)
    watched.turn()
    seen.append(watched.page()["suspect_partitions"])

    assert seen == [2, 1, 0]


def test_the_page_shows_what_is_held_and_since_when(watched: Watched) -> None:
    """A stuck partition, a hanging inference and a silent loop show as growing ages."""
    watched.events.assigned([P0, P1])
    watched.ledger.rows, watched.ledger.size = 40, 4096
    watched.ledger.oldest[P0] = 998.0
    watched.ledger.published[P0] = round((watched.date - 60.0) * 1000)
    watched.lanes.running_since = 999.0
    watched.turn(1.0)
    watched.now += 2.0

    page = watched.page()

    assert (page["rows_in_flight"], page["in_flight_bytes"], page["partitions"]) == (40, 4096, 2)
    assert page["oldest_unsettled_seconds 0 requests"] == 5.0
    assert page["oldest_unsettled_seconds 1 requests"] == 0.0, "it holds nothing"
    assert page["oldest_request_age_seconds 0 requests"] == pytest.approx(63.0)
    assert page["oldest_request_age_seconds 1 requests"] == 0.0, "it holds nothing"
    assert page["inference_running_seconds"] == 4.0
    assert page["loop_heartbeat_age_seconds"] == 2.0


def test_a_pause_counts_when_it_begins(watched: Watched) -> None:
    """And the page says whether one lasts."""
    seen = []
    for is_paused in (True, False, True):
        watched.events.paused(is_paused=is_paused)
        watched.turn()
        seen.append((watched.page()["pauses_total"], watched.page()["paused"]))

    assert seen == [(1, 1), (1, 0), (2, 1)]


def test_what_left_with_its_partition_is_no_commit_lag(watched: Watched) -> None:
    """This replica has to commit it no more."""
    watched.ledger.pending = {P0: 5}
    watched.turn(1.0)
    watched.turn(1.0)
    assert watched.page()["commit_lag_seconds"] == 1.0

    watched.ledger.pending = {}
    watched.turn(1.0)
    assert watched.page()["commit_lag_seconds"] == 0.0

    watched.ledger.pending = {P1: 7}
    watched.turn(1.0)
    assert watched.page()["commit_lag_seconds"] == 0.0


def test_the_page_shows_what_the_clients_saw(watched: Watched) -> None:
    """The lag of the partitions held, what cannot leave, and whether brokers answer."""
    watched.events.assigned([P0])
    watched.events.consumer_seen(2, {P0: Standing(93, 100), P1: Standing(91, 100)})
    watched.events.producer_seen(0, {"answers": 3, "rejected": 0})
    watched.turn()

    page = watched.page()

    assert {name: value for name, value in page.items() if name.startswith("consumer_lag")} == {
        "consumer_lag 0 requests": 7
    }
    assert (page["undelivered_messages answers"], page["undelivered_messages rejected"]) == (3, 0)
    assert (page["broker_connections consumer"], page["broker_connections producer"]) == (2, 0)


def test_lag_counts_from_whichever_commit_got_furthest(watched: Watched) -> None:
    """Under exactly once the consumer knows its own first commit alone; what moved away and came back counts anew."""
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


def test_an_outage_has_a_beginning_and_an_end_in_the_log(watched: Watched, log: list[Any]) -> None:
    """One line each, however often the client says so; a worker that holds nothing yet is not cut off."""
    watched.events.consumer_seen(0, {})
    watched.events.assigned([P0])

    for connections in (1, 0, 0, 2, 2):
        watched.events.consumer_seen(connections, {})

    told = [line["event"] for line in log if line["event"].startswith("brokers")]
    assert told == ["brokers_out_of_reach", "brokers_reached_again"]


def test_a_partition_that_stands_still_is_told_at_once_now_and_then_and_when_it_goes_on(
    watched: Watched, log: list[Any]
) -> None:
    """With what it may be. Its age is on the page, and one that moved away is not ours to report."""
    stalls = {
        P0: Stall(13, watched.now - 30, is_transaction=False),
        P1: Stall(7, watched.now, is_transaction=True),
    }
    watched.events.assigned([P0])

    for _ in range(round(STALL_AGAIN_AFTER) + 1):
        watched.events.stalled(stalls)
        watched.turn(1.0)
    shown = watched.page()
    watched.events.stalled({})
    watched.turn()

    told = [(line["event"], line["log_level"], line["stood_s"]) for line in log if "stood_s" in line]
    assert told == [
        ("partition_stalled", "error", 30),
        ("partition_stalled", "error", 330),
        ("partition_goes_on", "info", 331),
    ]
    assert [line["offset"] for line in log if line["event"] == "partition_stalled"] == [13, 13]
    assert {name: age for name, age in shown.items() if name.startswith("partition_stalled")} == {
        "partition_stalled_seconds 0 requests": 331
    }
    assert watched.page()["partition_stalled_seconds 0 requests"] == 0.0


def test_a_partition_that_moves_away_while_it_stands_does_not_go_on(watched: Watched, log: list[Any]) -> None:
    """Its next owner says when."""
    watched.events.assigned([P0])
    watched.events.stalled({P0: Stall(13, watched.now, is_transaction=False)})

    watched.events.revoked([P0], 0.0, 0)
    watched.events.stalled({})

    assert not [line for line in log if line["event"] == "partition_goes_on"]


def test_a_worker_of_which_every_partition_stands_still_is_not_ready(watched: Watched) -> None:
    """While one of them gives something, it is."""
    watched.events.model_warmed("digits", "1", "cpu")
    watched.events.assigned([P0, P1])
    stall, said = Stall(13, watched.now, is_transaction=True), []

    for stalls in ({P0: stall}, {P0: stall, P1: stall}, {P1: stall}):
        watched.events.stalled(stalls)
        watched.turn(1.0)
        said.append(watched.events.latest.unready)

    assert said == [
        None,
        "nothing comes of the partitions held although there is more in them: requests/0, requests/1",
        None,
    ]


def test_a_worker_without_one_of_its_request_topics_is_not_ready(watched: Watched, log: list[Any]) -> None:
    """It says so at once, once for each topic, and is ready again when the topic is back."""
    watched.events.model_warmed("digits", "1", "cpu")
    watched.events.assigned([P0])

    watched.events.topics_absent(["orders"])
    watched.events.topics_absent(["backfill", "orders"])
    unready, page = watched.events.latest.unready, watched.page()
    watched.events.topics_absent([])

    assert unready == "the cluster has no topic backfill and no topic orders"
    assert (page["request_topics_absent"], page["ready"]) == (2, 0)
    assert watched.events.latest.unready is None
    assert watched.page()["request_topics_absent"] == 0
    told = [(line["event"], line["topics"]) for line in log if line["event"].startswith("request_topics")]
    assert told == [
        ("request_topics_gone", ["orders"]),
        ("request_topics_gone", ["backfill"]),
        ("request_topics_back", ["backfill", "orders"]),
    ]


def test_the_page_shows_how_many_partitions_a_request_topic_has(watched: Watched) -> None:
    """Beside how many are held here: the sum over the replicas is short of it by those that no replica reads."""
    watched.events.topics_counted({"requests": 200, "backfill": 4})
    watched.events.assigned([P0, P1])
    watched.turn()
    page = watched.page()

    watched.events.topics_counted({"requests": 210})

    assert (page["request_topic_partitions requests"], page["request_topic_partitions backfill"]) == (200, 4)
    assert page["partitions"] == 2
    watched.turn()
    assert watched.page()["request_topic_partitions requests"] == 210
    assert "request_topic_partitions backfill" not in watched.page()


def test_a_batch_is_full_at_what_the_model_takes(watched: Watched) -> None:
    """Which may be less than the settings allow."""
    watched.events.bounded(lanes=2, batch=8, records=100, rows=200, size=300, run=60.0)
    watched.events.batch_closed(batch(8), waited=0.002)
    watched.turn()

    assert watched.page()["batch_fill_ratio_sum"] == 1.0


def test_the_page_shows_the_bounds(watched: Watched) -> None:
    """So that an alert can say how near they are without knowing the settings."""
    watched.events.bounded(lanes=2, batch=32, records=100, rows=200, size=300, run=60.0)
    watched.turn()

    page = watched.page()

    assert (page["records_in_flight_limit"], page["rows_in_flight_limit"]) == (100, 200)
    assert (page["in_flight_limit_bytes"], page["inference_timeout_seconds"]) == (300, 60.0)


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
    assert page["revoked_unsettled_total"] == 3 + 2
    assert [page[f"rebalances_total {event}"] for event in ("assigned", "revoked", "lost")] == [1, 1, 1]


def test_commit_lag_counts_from_the_last_commit_that_got_through(watched: Watched) -> None:
    """And is nothing while there is nothing to commit."""
    lags = []
    for pending, committed in [({}, {}), ({P0: 1}, {}), ({P0: 2}, {}), ({P0: 3}, {P0: 2}), ({}, {P0: 3})]:
        watched.ledger.pending = dict(pending)
        if committed:
            watched.events.committed(CommitResult(committed, {}))
        watched.turn(1.0)
        lags.append(watched.page()["commit_lag_seconds"])

    assert lags == [0.0, 0.0, 1.0, 0.0, 0.0]


def test_snapshots_are_published_now_and_then_and_the_heartbeat_at_once(watched: Watched) -> None:
    """A turn may be a hundred microseconds."""
    watched.turn()
    first = watched.events.latest
    watched.turn(PUBLISH_EVERY / 10)

    assert watched.events.latest == first
    assert watched.events.heartbeat == watched.now
    watched.turn()
    assert watched.events.latest.turned_at == watched.now


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
    watched.signals.stop_asked = True
    watched.turn()
    said.append(events.latest.unready)

    loading = "the model is not loaded yet"
    assert said == [loading, loading, None, "not in the consumer group yet", "stopping"]


def test_the_runbook_has_each_reason_for_which_a_worker_is_not_ready(watched: Watched) -> None:
    """As `/readyz` says it, but for the names and numbers of that worker."""
    events = watched.events
    states = SimpleNamespace(keys=0, size=0, loads=0, restoring=2, left_to_restore=70)
    places = SimpleNamespace(places_awaited=4)
    events.watch(WatchedParts(watched.ledger, watched.lanes, watched.batcher, watched.signals, states, places=places))
    said = [events.latest.unready]
    events.model_warmed("digits", "1", "cpu")
    said.append(events.latest.unready)
    events.assigned([P0])
    said.append(events.latest.unready)
    places.places_awaited = 0
    watched.turn()
    said.append(events.latest.unready)
    events.stalled({P0: Stall(13, 0.0, is_transaction=False)})
    watched.turn()
    said.append(events.latest.unready)
    events.topics_absent(["orders"])
    said.append(events.latest.unready)
    watched.signals.stop_asked = True
    watched.turn()
    said.append(events.latest.unready)

    runbook = (ROOT / "deploy" / "README.md").read_text(encoding="utf-8")
    section = runbook.partition("### InferenceWorkerNotReady\n")[2].partition("\n### ")[0]
    known = [re.escape(reason).replace("…", ".+") for reason in re.findall(r"^- `(.+?)`", section, re.MULTILINE)]
    assert [reason for reason in said if not any(re.match(each, reason or "") for each in known)] == []
    assert len(known) == len(said)


def test_a_crowd_of_failures_is_one_line_now_and_then(watched: Watched, log: list[Any]) -> None:
    """The first is logged at once, the rest summed up."""
    for offset in range(3):
        watched.events.rejected(rejection(offset))
    watched.turn()
    for offset in range(100):
        watched.events.rejected(rejection(offset, Code.NOT_FOUND))
        watched.turn(0.01)
    watched.turn(SUM_UP_EVERY)
    watched.turn(SUM_UP_EVERY)

    lines = [line for line in log if line["event"] == "requests_rejected"]
    assert [(line["count"], line["reasons"], line["last"]) for line in lines] == [
        (3, {"INVALID_ARGUMENT": 3}, "requests/0/2"),
        (100, {"NOT_FOUND": 100}, "requests/0/99"),
    ]
    assert {line["why"] for line in lines} == {"expected FP32, got '…'"}
    assert not any("next" in line for line in lines)
    assert {line["log_level"] for line in lines} == {"warning"}


def test_failures_that_are_not_summed_up_yet_are_told_at_the_end(watched: Watched, log: list[Any]) -> None:
    """Each once, and before the last line."""
    watched.events.rejected(rejection(1))
    watched.turn()
    for offset in range(2, 9):
        watched.events.rejected(rejection(offset))
    watched.events.committed(CommitResult({}, {P1: "no coordinator"}))

    watched.events.close()
    watched.events.stopped(0, "asked to")

    assert [(line["event"], line.get("count"), line.get("last")) for line in log if line["log_level"] != "debug"] == [
        ("requests_rejected", 1, "requests/0/1"),
        ("requests_rejected", 7, "requests/0/8"),
        ("commits_failed", 1, "requests/1"),
        ("stopped", None, None),
    ]


def test_rejections_name_the_command_that_shows_the_last_one(log: list[Any]) -> None:
    """Beside the reason, where such a command is known."""
    events = WorkerEvents(32, explained_by="inference-worker dead-letters show")
    for offset in range(3):
        events.rejected(rejection(offset))

    events.turned(1000.0, 0)

    line = log[-1]
    assert line["next"] == f"inference-worker dead-letters show {line['last']}"
    assert line["last"] == "requests/0/2"


def test_failed_transactions_are_told_with_their_reason_and_committed_ones_are_not(
    watched: Watched, log: list[Any]
) -> None:
    """One line now and then, as for any crowd of failures."""
    for failure in (None, "the coordinator is away", "the coordinator is away", None):
        watched.events.transaction_ended(Ending(failure, 0.01), records=7)
    watched.turn()

    assert [(line["event"], line["log_level"]) for line in log] == [("transactions_failed", "warning")]
    assert (log[0]["count"], log[0]["reasons"]) == (2, {"the coordinator is away": 2})
    assert log[0]["last"] == "7 records"


def test_no_payload_and_no_key_is_ever_logged(watched: Watched, log: list[Any]) -> None:
    """Not even at debug; a request id is cut short and its control characters are escaped."""
    watched.events.rejected(rejection(request_id="line\nbreak" + "x" * 500))
    watched.turn()

    text = repr(log)
    assert "a-value" not in text
    assert "a-key" not in text
    (line,) = [line for line in log if line["event"] == "request_rejected"]
    assert line["request_id"].startswith("line\\nbreakx")
    assert len(line["request_id"]) < 140


def test_nothing_per_batch_or_record_is_logged_above_debug(watched: Watched, log: list[Any]) -> None:
    """A busy worker is a quiet one."""
    for _ in range(10):
        watched.events.taken(1)
        watched.events.batch_closed(batch(1), 0.0)
        watched.events.batch_ran(1, 0.1, None)
        watched.events.settled({watched.now: 1}, watched.now)
        watched.events.committed(CommitResult({P0: 1}, {}))
        watched.events.transaction_ended(Ending(None, 0.005), records=1)
        watched.events.device_probed(None)
        watched.turn()

    assert {line["log_level"] for line in log} == {"debug"}


def test_the_wish_to_stop_is_logged_once(watched: Watched, log: list[Any]) -> None:
    """With what there is to finish."""
    watched.ledger.rows = 7
    watched.signals.stop_asked = True
    watched.turn()
    watched.turn()

    assert [(line["event"], line["rows_in_flight"]) for line in log] == [("stop_asked", 7)]


def test_what_an_operator_would_tell_is_logged(watched: Watched, log: list[Any]) -> None:
    """Partitions by name, the first twenty of them, and an error where the worker stops for one."""
    watched.events.assigned([Partition("t", n) for n in range(25)])
    watched.events.revoked([P0], 0.1234567, 2)
    watched.events.lost([P1], 2)
    watched.events.rewound([P0])
    watched.events.suspected([Suspect(P0, 3, None, until=50)])
    watched.events.paused(is_paused=True)
    watched.events.paused(is_paused=False)
    watched.events.device_probed("CUDA failure 2")
    watched.events.rows_lost("output y: 4 rows went in, shape (3,) came out")
    watched.events.noted("http_listening", url="http://127.0.0.1:1")
    watched.events.warned("plaintext")
    watched.events.stopped(0, "asked to")
    watched.events.stopped(5, "the device is lost")

    assert [(line["event"], line["log_level"]) for line in log] == [
        ("partitions_assigned", "info"),
        ("partitions_revoked", "info"),
        ("partitions_lost", "warning"),
        ("partitions_rewound", "info"),
        ("partition_suspected", "warning"),
        ("fetching_paused", "info"),
        ("fetching_resumed", "info"),
        ("device_failed_its_probe", "error"),
        ("rows_lost", "error"),
        ("http_listening", "info"),
        ("plaintext", "warning"),
        ("stopped", "info"),
        ("stopped", "error"),
    ]
    assert log[0]["partitions"][-2:] == ["t/19", "and 5 more"]
    assert (log[1]["seconds"], log[1]["unsettled"]) == (0.123, 2)
    assert {name: log[4][name] for name in ("partition", "attempts", "until", "poison_offset")} == {
        "partition": "requests/0",
        "attempts": 3,
        "until": 50,
        "poison_offset": None,
    }
