"""Every metric with its kind and the question it answers; its name says the unit. `page.py` shows them.

Label sets are bounded: reasons, codes, and the partitions held. No payload, key or id is ever a label. A label's values
that are known beforehand are shown from 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from worker.core.failures import Code
from worker.core.records import ClosedBy
from worker.telemetry.metrics.metric_values import Metric, MetricKind


def _declared(kind: MetricKind, name: str, question: str, labels: dict[str, Sequence[str]]) -> Metric:
    return Metric(name, kind, question, tuple(labels), tuple(product(*labels.values())) if labels else ())


def counter(name: str, question: str, /, **labels: Sequence[str]) -> Metric:
    return _declared(MetricKind.COUNTER, name, question, labels)


def gauge(name: str, question: str, /, **labels: Sequence[str]) -> Metric:
    return _declared(MetricKind.GAUGE, name, question, labels)


def age(name: str, question: str, /, **labels: Sequence[str]) -> Metric:
    return _declared(MetricKind.AGE, name, question, labels)


def info(name: str, question: str, /, **labels: Sequence[str]) -> Metric:
    return _declared(MetricKind.INFO, name, question, labels)


def histogram(name: str, question: str, bounds: tuple[float, ...]) -> Metric:
    return Metric(name, MetricKind.HISTOGRAM, question, bounds=bounds)


# From a small model's 50 µs to the longest inference allowed; a factor of 2 to 3 between neighbours.
SECONDS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 240.0),
)
TENTHS = tuple(tenth / 10 for tenth in range(1, 11))
# Requests wait in Kafka for milliseconds, or for hours behind a backlog.
AGES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0)
RESULTS = ("ok", "failed")
REASONS = tuple(reason.value for reason in ClosedBy)

RECORDS_TAKEN = counter("records_taken", "How many requests came in?")
RECORDS_SETTLED = counter(
    "records_settled", "How many requests have an answer the broker acknowledged, or need none (NULL_VALUE=skip)?"
)
RECORDS_IN_FLIGHT = gauge(
    "records_in_flight",
    "How many requests are taken and not settled? ORDER key or none: or settled behind one that is not.",
)
ROWS_IN_FLIGHT = gauge("rows_in_flight", "How many rows do they hold?")
BYTES_IN_FLIGHT = gauge("in_flight_bytes", "How much memory do they hold?")
STATES = gauge("states", "Of how many keys does this replica hold a state? Without state: 0.")
STATE_BYTES = gauge("state_bytes", "How large are their tensors, in memory or in the files of STATE__DIRECTORY?")
STATES_LOADED = counter(
    "states_loaded",
    "How many keys were looked up in STATE__DIRECTORY, or states read from STATE__STORE, for a request?",
)
STORE_AWAY = age("state_store_away_seconds", "Since when does STATE__STORE not answer? 0: it does.")
STORE_ROUND_TRIP = histogram(
    "state_store_round_trip_seconds", "How long does STATE__STORE take to write and to read for a batch?", SECONDS
)
WAITING_FOR_STATE = gauge(
    "requests_waiting_for_state", "How many requests wait for their key's state from STATE__STORE?"
)
APPLIED_BEFORE = counter(
    "requests_applied_before",
    "How many requests were read again that STATE__STORE says are answered? They get no second answer.",
)
FOREIGN_STATES = counter(
    "foreign_states",
    "How many records of the changelog, or values in STATE__STORE, are no states of this model? Others wrote them.",
)
RESTORING = gauge("restoring_partitions", "How many partitions wait for their states to be read back?")
RESTORE_LEFT = gauge("restore_records_left", "How many records of their changelogs are still to be read, about?")
RESTORE = histogram("restore_seconds", "How long does it take to read a partition's states back?", SECONDS)
WAITING_FOR_KEY = gauge("requests_waiting_for_key", "How many requests wait for an earlier one of their key?")
RECORDS_LIMIT = gauge("records_in_flight_limit", "How many requests may be in flight? MAX_INFLIGHT_RECORDS.")
ROWS_LIMIT = gauge("rows_in_flight_limit", "How many rows may be in flight?")
BYTES_LIMIT = gauge("in_flight_limit_bytes", "How much memory may requests in flight hold? MAX_INFLIGHT_BYTES.")
MEMORY_LIMIT = gauge("memory_limit_bytes", "How much memory may this container use? 0: no limit.")
BATCHES = counter("batches", "Why do batches close?", closed_by=REASONS)
BATCH_ROWS = counter("batch_rows", "How many rows went with them?", closed_by=REASONS)
BATCH_FILL = histogram("batch_fill_ratio", "How full are batches, as a part of MAX_BATCH_SIZE?", TENTHS)
BUCKET_BATCHES = counter("bucket_batches", "Which buckets do batches run in?", bucket=())
BUCKET_ROWS = counter("bucket_rows", "How many rows went with them?", bucket=())
ELEMENTS = counter(
    "elements",
    "How much of what a bucket's batches hold is padding? Elements of the largest input.",
    bucket=(),
    kind=(),
)
BATCH_WAIT = histogram(
    "batch_wait_seconds", "How long does a batch's first request wait for company and for a lane?", SECONDS
)
LINGER = gauge("linger_seconds", "How long does it wait for company, with an idle lane? LINGER_MS or as `auto` chose.")
REQUEST_AGE = histogram(
    "request_age_seconds", "How long ago was a batch's first request published, when the batch goes to the model?", AGES
)
INFERENCE = histogram("inference_seconds", "How long does one inference take?", SECONDS)
END_TO_END = histogram(
    "end_to_end_seconds", "How long from taking a request to the broker's acknowledgement of its answer?", SECONDS
)
RUNS = counter("inference_runs", "How many inferences fail?", result=RESULTS)
PROBES = counter("device_probes", "How often was the device checked after failures?", result=RESULTS)
DELETED = counter(
    "requests_deleted",
    "How many requests did retention delete before they were read? Counted in offsets; they get no answer.",
)
REJECTIONS = counter(
    "rejections", "How many requests were answered with an error, and why?", code=[code.value for code in Code]
)
LATE = counter("late_answers", "How many requests were run, and answered after their deadlines all the same?")
COMMITS = counter("commits", "Are offsets committed? One count per partition.", result=RESULTS)
COMMIT_LAG = age("commit_lag_seconds", "Since when is something committable and no commit got through?")
TRANSACTIONS = counter(
    "transactions",
    "Do transactions get through? All of what a failed one held is read again.",
    result=("committed", "failed"),
)
TRANSACTION_END = histogram(
    "transaction_end_seconds", "How long does it take to end a transaction? Nothing is produced meanwhile.", SECONDS
)
REWINDS = counter("rewinds", "How often is a partition read again from what the group has committed?")
SUSPECTS = gauge("suspect_partitions", "How many partitions run one record at a time, having ended the process before?")
STALL = age(
    "oldest_unsettled_seconds",
    "Is a partition stuck? Age of its oldest request that is taken and not settled.",
    topic=(),
    partition=(),
)
OLDEST_REQUEST = age(
    "oldest_request_age_seconds",
    "Which partition is behind? Age of its oldest request that is taken and not settled, since it was published.",
    topic=(),
    partition=(),
)
HEARTBEAT_AGE = age("loop_heartbeat_age_seconds", "Does the loop turn?")
RUNNING = age("inference_running_seconds", "Does an inference hang? Age of the oldest now.")
LANES = gauge("lanes", "How many inferences may run at once?")
RUN_LIMIT = gauge("inference_timeout_seconds", "When does an inference count as hung? RUN_TIMEOUT_S.")
LAG = gauge(
    "consumer_lag",
    "How many offsets lie between a partition's commit and its end, as last fetched?",
    topic=(),
    partition=(),
)
STALLED = age(
    "partition_stalled_seconds",
    "Does a partition give nothing although its log goes on? Since when.",
    topic=(),
    partition=(),
)
CONNECTIONS = gauge(
    "broker_connections", "Can the cluster be reached? Open connections to brokers.", client=("consumer", "producer")
)
THROTTLED = counter(
    "throttled_seconds", "How long do brokers tell a client to wait for its quota?", client=("consumer", "producer")
)
UNDELIVERED = gauge(
    "undelivered_messages",
    "Which topic takes no answers? Messages sent to it that no broker has acknowledged.",
    topic=(),
)
TOPICS_ABSENT = gauge("request_topics_absent", "How many of the request topics does the cluster not have?")
TOPIC_PARTITIONS = gauge(
    "request_topic_partitions",
    "How many partitions does a request topic have? Each is to be held by one replica.",
    topic=(),
)
PARTITIONS = gauge("partitions", "How many partitions does this replica hold?")
REBALANCES = counter("rebalances", "How often do partitions come and go?", event=("assigned", "revoked", "lost"))
REVOKED_UNSETTLED = counter(
    "revoked_unsettled", "How many requests left unsettled with their partition, to be answered again?"
)
PAUSES = counter("pauses", "How often was fetching paused because too much is in flight?")
PAUSED = gauge("paused", "Is fetching paused now?")
READY = gauge(
    "ready",
    "Is the model warm, this replica in the group, are all topics, states and beginnings there, does anything come?",
)
BUILD = info("build", "Which build is this?", version=(), python=())
MODEL = info("model", "Which model is served, of which file, and on what?", name=(), version=(), file=(), device=())

METRICS: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
