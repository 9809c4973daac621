"""The metrics, each with its kind and its question, and the plain numbers that they are counted in.

The loop's thread owns the `Numbers`. Other threads read a `Snapshot`, which never changes; `metrics_page.py` shows one
to Prometheus. A count changes a dictionary entry or a bucket, once per batch, and costs 0.3 µs; a counter of
`prometheus_client` costs 0.6 µs and its histogram 1.5 µs (measured 2026-11).

Label sets are bounded: reasons, codes, and the partitions held. No payload, key or id is ever a label. Label values
known beforehand are shown from 0: a rate over a counter that appears with its first event misses that event.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Literal, NamedTuple

from worker.core.failures import Code
from worker.core.records import ClosedBy, HostEnd
from worker.core.tensors.signature import Signature
from worker.telemetry.logs import RecentRejection

Labels = tuple[str, ...]
# For an age the snapshot holds an instant; the reader sees the seconds since then, or 0 where there is none.
Kind = Literal["counter", "gauge", "age", "info", "histogram"]


@dataclass(frozen=True, slots=True, eq=False)  # one object per metric: looked up by identity
class Metric:
    """One declared metric. Its name says the unit, `question` its purpose; `known` are label values shown from 0."""

    name: str
    kind: Kind
    question: str
    labels: Labels = ()
    known: tuple[Labels, ...] = ()
    bounds: tuple[float, ...] = ()


def _declared(kind: Kind, name: str, question: str, /, **labels: Sequence[str]) -> Metric:
    known = ((),) if not labels and kind != "age" else tuple(product(*labels.values())) if labels else ()
    return Metric(name, kind, question, tuple(labels), known)


def histogram(name: str, question: str, bounds: tuple[float, ...]) -> Metric:
    return Metric(name, "histogram", question, bounds=bounds)


counter = partial(_declared, "counter")
gauge = partial(_declared, "gauge")
age = partial(_declared, "age")
info = partial(_declared, "info")

# From a small model's 50 µs to the longest inference allowed; a factor of 2 to 3 between neighbours.
SECONDS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 240.0),
)
# Requests wait in Kafka for milliseconds, or for hours behind a backlog.
AGES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0)
RESULTS = ("ok", "failed")
CLIENTS = ("consumer", "producer")
REASONS = tuple(reason.value for reason in ClosedBy)
ENDS = tuple(end.value for end in HostEnd)
CODES = tuple(code.value for code in Code)
BY_PARTITION: Mapping[str, Sequence[str]] = {"topic": (), "partition": ()}

RECORDS_TAKEN = counter("records_taken", "How many records came in?")
RECORDS_PASSED_OVER = counter("records_passed_over", "How many of them are of other kinds, or null, and get no answer?")
RECORDS_SETTLED = counter("records_settled", "How many records have an acknowledged answer, or need none?")
RECORDS_IN_FLIGHT = gauge("records_in_flight", "How many records are taken and not settled, or settled behind one?")
ROWS_IN_FLIGHT = gauge("rows_in_flight", "How many rows do they hold?")
BYTES_IN_FLIGHT = gauge("in_flight_bytes", "How much memory do they hold?")
RECORDS_LIMIT = gauge("records_in_flight_limit", "How many records may be in flight? MAX_INFLIGHT_RECORDS.")
ROWS_LIMIT = gauge("rows_in_flight_limit", "How many rows may be in flight?")
BYTES_LIMIT = gauge("in_flight_limit_bytes", "How much memory may records in flight hold? MAX_INFLIGHT_BYTES.")
MEMORY_LIMIT = gauge("memory_limit_bytes", "How much memory may this container use? 0: no limit.")
STALL = age("oldest_unsettled_seconds", "Is a partition stuck? Age of its oldest unsettled record.", **BY_PARTITION)
OLDEST_REQUEST = age(
    "oldest_request_age_seconds", "Which partition is behind? The same age, since the publication.", **BY_PARTITION
)

BATCHES = counter("batches", "Why do batches close?", closed_by=REASONS)
BATCH_ROWS = counter("batch_rows", "How many rows went with them?", closed_by=REASONS)
MAX_BATCH_ROWS = gauge("max_batch_rows", "How many rows may a batch have? MAX_BATCH_SIZE, or what the model takes.")
BATCH_WAIT = histogram("batch_wait_seconds", "How long does a batch wait for company and for a lane?", SECONDS)
LINGER = gauge("linger_seconds", "How long does it wait for company, with an idle lane? LINGER_MS or as `auto` chose.")
BUCKET_BATCHES = counter("bucket_batches", "Which buckets do batches run in?", bucket=())
BUCKET_ROWS = counter("bucket_rows", "How many rows went with them?", bucket=())
ELEMENTS = counter("elements", "How much of a bucket's batches is padding? By the largest input.", bucket=(), kind=())

INFERENCE = histogram("inference_seconds", "How long does one inference take?", SECONDS)
RUNS = counter("inference_runs", "How many inferences fail?", result=RESULTS)
RUNNING = age("inference_running_seconds", "Does an inference hang? Age of the oldest now.")
RUN_LIMIT = gauge("inference_timeout_seconds", "When does an inference count as hung? RUN_TIMEOUT_S.")
HOSTS_ENDED = counter("model_hosts_ended", "How often did the process that has the model end, and why?", reason=ENDS)
HOST_AWAY = age("model_host_away_seconds", "Since when is it being started anew? 0: it runs.")
PROBES = counter("device_probes", "How often was the device checked after failures?", result=RESULTS)
LANES = gauge("lanes", "How many inferences may run at once?")
LOOP = counter("loop_seconds", "How busy is the loop? Processor time of its thread.")

REQUEST_AGE = histogram("request_age_seconds", "How old is a batch's first record when the model gets it?", AGES)
END_TO_END = histogram("end_to_end_seconds", "How long from taking a record to its answer's acknowledgement?", SECONDS)
REJECTIONS = counter("rejections", "How many records were answered with an error, and why?", code=CODES)
LATE = counter("late_answers", "How many records were run, and answered after their deadlines all the same?")
DELETED = counter("requests_deleted", "How many offsets did retention delete before they were read?")

COMMIT_LAG = age("commit_lag_seconds", "Since when is something committable and no commit got through?")
TRANSACTIONS = counter("transactions", "Do transactions get through?", result=("committed", "failed"))
TRANSACTION_END = histogram("transaction_end_seconds", "How long does it take to end a transaction?", SECONDS)

LAG = gauge("consumer_lag", "How many offsets is a partition's commit behind its end?", **BY_PARTITION)
STALLED = age("partition_stalled_seconds", "Since when does a partition with more give nothing?", **BY_PARTITION)
PARTITIONS = gauge("partitions", "How many partitions does this replica hold?")
TOPIC_PARTITIONS = gauge("request_topic_partitions", "How many partitions does a request topic have?", topic=())
REBALANCES = counter("rebalances", "How often do partitions come and go?", event=("assigned", "revoked", "lost"))
CONNECTIONS = gauge("broker_connections", "Can the cluster be reached? Open connections to brokers.", client=CLIENTS)
THROTTLED = counter("throttled_seconds", "How long do brokers tell a client to wait for its quota?", client=CLIENTS)
UNDELIVERED = gauge("undelivered_messages", "Which topic takes no answers? What is not acknowledged.", topic=())
PAUSED = gauge("paused", "Is fetching paused now, because too much is in flight?")

STATES = gauge("states", "Of how many keys does this replica hold a state? Without state: 0.")
STATE_BYTES = gauge("state_bytes", "How large are their tensors, in memory or in the files of STATE__DIRECTORY?")
STATES_LOADED = counter("states_loaded", "How many states were looked up in STATE__DIRECTORY or STATE__STORE?")
STORE_AWAY = age("state_store_away_seconds", "Since when does STATE__STORE not answer? 0: it does.")
STORE_ROUND_TRIP = histogram("state_store_round_trip_seconds", "How long does STATE__STORE take for a batch?", SECONDS)
FOREIGN_STATES = counter("foreign_states", "How many records or values among the states did others write?")
APPLIED_BEFORE = counter("requests_applied_before", "How many records does STATE__STORE say are answered already?")
RESTORING = gauge("restoring_partitions", "How many partitions wait for their states to be read back?")
RESTORE_LEFT = gauge("restore_records_left", "How many records of their changelogs are still to be read, about?")
WAITING_FOR_KEY = gauge("requests_waiting_for_key", "How many records wait for an earlier one of their key?")

WAITING_FOR_SCHEMA = gauge("partitions_waiting_for_schema", "How many partitions stand until a schema comes?")
REGISTRY_AWAY = age("registry_away_seconds", "Since when does the schema registry not answer? 0: it does.")

READY = gauge("ready", "Is this replica ready to answer? 0: /readyz says why not.")
BUILD = info("build", "Which build is this?", version=(), python=())
MODEL = info("model", "Which model is served, of which file, and on what?", name=(), version=(), file=(), device=())

METRICS: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))


def since_then(instant: float | None) -> Mapping[Labels, float]:
    """The instant of an age without labels; empty for None, which means no age."""
    return {} if instant is None else {(): instant}


class HistogramState(NamedTuple):
    """A histogram's state: observations per bucket, one bucket more than the metric has bounds, and their sum."""

    counts: tuple[int, ...]
    total: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The numbers at one instant, `turned_at` (monotonic seconds; None before the loop's first turn).

    `phase` is the worker's state in a word. `unready` says why no answers should be expected now; None means ready.
    `rejected` has the last rejection of each kind. `served` is the form of requests and answers, once known. `host` is
    the id of the process that has the model; None while there is none of its own.
    """

    phase: str = "starting"
    unready: str | None = "starting"
    turned_at: float | None = None
    numbers: Mapping[Metric, Mapping[Labels, float]] = field(default_factory=dict)
    histograms: Mapping[Metric, HistogramState] = field(default_factory=dict)
    rejected: Sequence[RecentRejection] = ()
    served: Signature | None = None
    host: int | None = None

    def number(self, metric: Metric, *labels: str) -> float:
        return self.numbers.get(metric, {}).get(labels, 0.0)

    def histogram(self, metric: Metric) -> HistogramState:
        return self.histograms.get(metric) or HistogramState((0,) * (len(metric.bounds) + 1), 0.0)


class Numbers:
    """The numbers that still change. One thread uses them."""

    def __init__(self, metrics: Sequence[Metric] = METRICS) -> None:
        self._numbers: dict[Metric, dict[Labels, float]] = {
            metric: dict.fromkeys(metric.known, 0.0) for metric in metrics if metric.kind != "histogram"
        }
        self._counts = {metric: [0] * (len(metric.bounds) + 1) for metric in metrics if metric.kind == "histogram"}
        self._totals = dict.fromkeys(self._counts, 0.0)

    def add(self, metric: Metric, amount: float = 1, *labels: str) -> None:
        numbers = self._numbers[metric]
        numbers[labels] = numbers.get(labels, 0.0) + amount

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        self._numbers[metric][labels] = value

    def replace(self, metric: Metric, values: Mapping[Labels, float]) -> None:
        """Set a metric to these values. Other labels are forgotten: a partition that moved is not ours to report."""
        self._numbers[metric] = dict(values)

    def observe(self, metric: Metric, value: float, times: int = 1) -> None:
        """Count a value in the first bucket whose bound is not below it."""
        self._counts[metric][bisect_left(metric.bounds, value)] += times
        self._totals[metric] += value * times

    def copied(self) -> dict[Metric, Mapping[Labels, float]]:
        return {metric: numbers.copy() for metric, numbers in self._numbers.items()}

    def histograms(self) -> dict[Metric, HistogramState]:
        return {metric: HistogramState(tuple(counts), self._totals[metric]) for metric, counts in self._counts.items()}
