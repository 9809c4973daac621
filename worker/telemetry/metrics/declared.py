"""Every metric with its kind, its unit and the question it answers. `page.py` shows them.

Label sets are bounded: reasons, codes, and the partitions held. No payload, key or id is ever a label.
"""

from __future__ import annotations

from worker.core.failures import Code
from worker.core.records import ClosedBy
from worker.telemetry.metrics.metric_values import Metric, MetricKind

# From a small model's 50 µs to the longest inference allowed; a factor of 2 to 3 between neighbours.
SECONDS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 240.0),
)
TENTHS = tuple(tenth / 10 for tenth in range(1, 11))
RESULTS = (("ok",), ("failed",))
ENDINGS = (("committed",), ("failed",))
REASONS = tuple((reason.value,) for reason in ClosedBy)

# Requests wait in Kafka for milliseconds, or for hours behind a backlog.
AGES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0)

RECORDS_TAKEN = Metric("records_taken", MetricKind.COUNTER, "How many requests came in?")
RECORDS_SETTLED = Metric(
    "records_settled", MetricKind.COUNTER, "How many requests have an answer the broker acknowledged?"
)
RECORDS_IN_FLIGHT = Metric(
    "records_in_flight",
    MetricKind.GAUGE,
    "How many requests are taken and not settled? ORDER key or none: or settled behind one that is not.",
)
ROWS_IN_FLIGHT = Metric("rows_in_flight", MetricKind.GAUGE, "How many rows do they hold?")
BYTES_IN_FLIGHT = Metric("in_flight_bytes", MetricKind.GAUGE, "How much memory do they hold?", "bytes")
STATES = Metric("states", MetricKind.GAUGE, "Of how many keys does this replica hold a state? Without state: 0.")
STATE_BYTES = Metric("state_bytes", MetricKind.GAUGE, "How much memory do their tensors hold?", "bytes")
STATES_LOADED = Metric(
    "states_loaded",
    MetricKind.COUNTER,
    "How many states came from STATE__DIRECTORY or STATE__STORE because a request needed them?",
)
STORE_AWAY = Metric(
    "state_store_away_seconds", MetricKind.AGE, "Since when does STATE__STORE not answer? 0: it does.", "seconds"
)
STORE_ROUND_TRIP = Metric(
    "state_store_round_trip_seconds",
    MetricKind.HISTOGRAM,
    "How long does STATE__STORE take to write and to read for a batch?",
    "seconds",
    bounds=SECONDS,
)
WAITING_FOR_STATE = Metric(
    "requests_waiting_for_state", MetricKind.GAUGE, "How many requests wait for their key's state from STATE__STORE?"
)
APPLIED_BEFORE = Metric(
    "requests_applied_before",
    MetricKind.COUNTER,
    "How many requests were read again that STATE__STORE says are answered? They get no second answer.",
)
RESTORING = Metric(
    "restoring_partitions", MetricKind.GAUGE, "How many partitions wait for their states to be read back?"
)
RESTORE_LEFT = Metric(
    "restore_records_left", MetricKind.GAUGE, "How many records of their changelogs are still to be read, about?"
)
RESTORE = Metric(
    "restore_seconds",
    MetricKind.HISTOGRAM,
    "How long does it take to read a partition's states back?",
    "seconds",
    bounds=SECONDS,
)
WAITING_FOR_KEY = Metric(
    "requests_waiting_for_key", MetricKind.GAUGE, "How many requests wait for an earlier one of their key?"
)
RECORDS_LIMIT = Metric(
    "records_in_flight_limit", MetricKind.GAUGE, "How many requests may be in flight? MAX_INFLIGHT_RECORDS."
)
ROWS_LIMIT = Metric("rows_in_flight_limit", MetricKind.GAUGE, "How many rows may be in flight? MAX_INFLIGHT_ROWS.")
BYTES_LIMIT = Metric(
    "in_flight_limit_bytes",
    MetricKind.GAUGE,
    "How much memory may requests in flight hold? MAX_INFLIGHT_BYTES.",
    "bytes",
)
MEMORY_LIMIT = Metric(
    "memory_limit_bytes", MetricKind.GAUGE, "How much memory may this container use? 0: no limit.", "bytes"
)
BATCHES = Metric("batches", MetricKind.COUNTER, "Why do batches close?", labels=("closed_by",), values=REASONS)
BATCH_ROWS = Metric(
    "batch_rows", MetricKind.COUNTER, "How many rows went with them?", labels=("closed_by",), values=REASONS
)
BATCH_FILL = Metric(
    "batch_fill_ratio",
    MetricKind.HISTOGRAM,
    "How full are batches, as a part of MAX_BATCH_SIZE?",
    "ratio",
    bounds=TENTHS,
)
BUCKET_BATCHES = Metric("bucket_batches", MetricKind.COUNTER, "Which buckets do batches run in?", labels=("bucket",))
BUCKET_ROWS = Metric("bucket_rows", MetricKind.COUNTER, "How many rows went with them?", labels=("bucket",))
ELEMENTS = Metric(
    "elements",
    MetricKind.COUNTER,
    "How much of what a bucket's batches hold is padding? Elements of the largest input.",
    labels=("bucket", "kind"),
)
BATCH_WAIT = Metric(
    "batch_wait_seconds",
    MetricKind.HISTOGRAM,
    "How long does a batch's first request wait for company and for a lane?",
    "seconds",
    bounds=SECONDS,
)
LINGER = Metric(
    "linger_seconds",
    MetricKind.GAUGE,
    "How long does it wait for company, with an idle lane? LINGER_MS or as `auto` chose.",
    "seconds",
)
REQUEST_AGE = Metric(
    "request_age_seconds",
    MetricKind.HISTOGRAM,
    "How long ago was a batch's first request published, when the batch goes to the model?",
    "seconds",
    bounds=AGES,
)
INFERENCE = Metric(
    "inference_seconds", MetricKind.HISTOGRAM, "How long does one inference take?", "seconds", bounds=SECONDS
)
END_TO_END = Metric(
    "end_to_end_seconds",
    MetricKind.HISTOGRAM,
    "How long from taking a request to the broker's acknowledgement of its answer?",
    "seconds",
    bounds=SECONDS,
)
RUNS = Metric("inference_runs", MetricKind.COUNTER, "How many inferences fail?", labels=("result",), values=RESULTS)
PROBES = Metric(
    "device_probes",
    MetricKind.COUNTER,
    "How often was the device checked after failures?",
    labels=("result",),
    values=RESULTS,
)
DELETED = Metric(
    "requests_deleted",
    MetricKind.COUNTER,
    "How many requests did retention delete before they were read? Counted in offsets; they get no answer.",
)
REJECTIONS = Metric(
    "rejections",
    MetricKind.COUNTER,
    "How many requests were answered with an error, and why?",
    labels=("code",),
    values=tuple((code.value,) for code in Code),
)
LATE = Metric(
    "late_answers", MetricKind.COUNTER, "How many requests were run, and answered after their deadlines all the same?"
)
COMMITS = Metric(
    "commits", MetricKind.COUNTER, "Are offsets committed? One count per partition.", labels=("result",), values=RESULTS
)
COMMIT_LAG = Metric(
    "commit_lag_seconds", MetricKind.AGE, "Since when is something committable and no commit got through?", "seconds"
)
TRANSACTIONS = Metric(
    "transactions",
    MetricKind.COUNTER,
    "Do transactions get through? All of what a failed one held is read again.",
    labels=("result",),
    values=ENDINGS,
)
TRANSACTION_END = Metric(
    "transaction_end_seconds",
    MetricKind.HISTOGRAM,
    "How long does it take to end a transaction? Nothing is produced meanwhile.",
    "seconds",
    bounds=SECONDS,
)
REWINDS = Metric(
    "rewinds", MetricKind.COUNTER, "How often is a partition read again from what the group has committed?"
)
SUSPECTS = Metric(
    "suspect_partitions",
    MetricKind.GAUGE,
    "How many partitions run one record at a time, having ended the process before?",
)
STALL = Metric(
    "oldest_unsettled_seconds",
    MetricKind.AGE,
    "Is a partition stuck? Age of its oldest request that is taken and not settled.",
    "seconds",
    labels=("topic", "partition"),
)
HEARTBEAT_AGE = Metric("loop_heartbeat_age_seconds", MetricKind.AGE, "Does the loop turn?", "seconds")
RUNNING = Metric(
    "inference_running_seconds", MetricKind.AGE, "Does an inference hang? Age of the oldest now.", "seconds"
)
RUN_LIMIT = Metric(
    "inference_timeout_seconds", MetricKind.GAUGE, "When does an inference count as hung? RUN_TIMEOUT_S.", "seconds"
)
LAG = Metric(
    "consumer_lag",
    MetricKind.GAUGE,
    "How many offsets lie between a partition's commit and its end, as last fetched?",
    labels=("topic", "partition"),
)
CONNECTIONS = Metric(
    "broker_connections",
    MetricKind.GAUGE,
    "Can the cluster be reached? Open connections to brokers.",
    labels=("client",),
    values=(("consumer",), ("producer",)),
)
UNDELIVERED = Metric(
    "undelivered_messages",
    MetricKind.GAUGE,
    "Which topic takes no answers? Messages sent to it that no broker has acknowledged.",
    labels=("topic",),
)
PARTITIONS = Metric("partitions", MetricKind.GAUGE, "How many partitions does this replica hold?")
REBALANCES = Metric(
    "rebalances",
    MetricKind.COUNTER,
    "How often do partitions come and go?",
    labels=("event",),
    values=(("assigned",), ("revoked",), ("lost",)),
)
REVOKED_UNSETTLED = Metric(
    "revoked_unsettled",
    MetricKind.COUNTER,
    "How many requests left unsettled with their partition, to be answered again?",
)
PAUSES = Metric("pauses", MetricKind.COUNTER, "How often was fetching paused because too much is in flight?")
PAUSED = Metric("paused", MetricKind.GAUGE, "Is fetching paused now?")
READY = Metric("ready", MetricKind.GAUGE, "Is the model warm and this replica in the group?")
BUILD = Metric("build", MetricKind.INFO, "Which build is this?", labels=("version", "python"))
MODEL = Metric("model", MetricKind.INFO, "Which model is served, and on what?", labels=("name", "version", "device"))

METRICS: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
