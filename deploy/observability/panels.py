# ruff: noqa: INP001  # made for dashboard.py beside it; nothing installs it
"""The panels of the dashboard: a title is what a person asks, its queries are the answer.

In a query, `@name` stands for a metric of the replicas that are chosen at the top of the dashboard.
"""

from __future__ import annotations

from typing import NamedTuple

WIDTH = 24  # columns of Grafana's grid


class Panel(NamedTuple):
    """One question. `queries` maps legends to expressions; `bad_above`: from there on a value is shown in red."""

    title: str
    queries: dict[str, str]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    note: str = ""
    bad_above: float | None = None
    is_stacked: bool = False


def quantiles(metric: str) -> dict[str, str]:
    """Median and tail of a histogram, over all replicas chosen."""
    rate = f"sum by (le) (rate(@{metric}_bucket[$__rate_interval]))"
    return {f"p{100 * q:g}": f"histogram_quantile({q}, {rate})" for q in (0.5, 0.9, 0.99)}


def per_second(metric: str, by: str = "") -> str:
    """How often a second, over all replicas chosen, apart by these labels. `metric` may name values of others."""
    return f"sum{f' by ({by})' if by else ''} (rate(@{metric}[$__rate_interval]))"


# Results and errors: what is settled, without the records that get no answer.
ANSWERS = f"({per_second('records_settled_total')} - {per_second('records_passed_over_total')})"

ROWS: dict[str, tuple[Panel, ...]] = {
    "Is it well?": (
        Panel(
            "Replicas ready",
            {"ready": "sum(@ready)", "running": "sum(@up)"},
            kind="stat",
            width=4,
            note="Ready: model warm and in the consumer group.",
        ),
        Panel(
            "Alerts firing",
            {"": 'count(ALERTS{alertname=~"InferenceWorker.*",alertstate="firing",job=~"$job"}) or vector(0)'},
            kind="stat",
            width=4,
            note="Each has a heading of its name in deploy/README.md.",
            bad_above=1,
        ),
        Panel(
            "Requests waiting",
            {"": "sum(@consumer_lag)"},
            kind="stat",
            width=4,
            note="Offsets between the commits and the ends of all partitions. Control records count, so 1 may stay.",
        ),
        Panel(
            "Time to catch up",
            {"": f"sum(@consumer_lag) / ({per_second('records_settled_total')} > 0)"},
            unit="s",
            kind="stat",
            width=4,
            note="What waits, at the rate of now, if nothing more came.",
            bad_above=300,
        ),
        Panel(
            "Age at the model, p99",
            {"": f"{quantiles('request_age_seconds')['p99']} >= 0"},
            unit="s",
            kind="stat",
            width=4,
            note="From publication until the batch begins; the publisher's clock against ours.",
            bad_above=60,
        ),
        Panel(
            "Answered with an error",
            {"": f"{per_second('rejections_total')} / ({ANSWERS} > 0)"},
            unit="percentunit",
            kind="stat",
            width=4,
            bad_above=0.05,
        ),
    ),
    "Throughput and latency": (
        Panel(
            "How much comes and goes?",
            {
                "taken": per_second("records_taken_total"),
                "settled": per_second("records_settled_total"),
                "of them errors": per_second("rejections_total"),
                "of them passed over": per_second("records_passed_over_total"),
            },
            unit="reqps",
            note="Settled: the broker has acknowledged the answer, or none is wanted. Passed over: records of other "
            "kinds (RECORDS__ONLY), and without a value (NULL_VALUE=skip).",
        ),
        Panel(
            "How old is a request when the model gets it?",
            quantiles("request_age_seconds"),
            unit="s",
            note="The first request of each batch, from its publication. Grows with the lag.",
        ),
        Panel(
            "How long from taking to acknowledgement?",
            quantiles("end_to_end_seconds"),
            unit="s",
            note="Waiting for company and a lane, inference, order, and the broker. Time in Kafka is not in it.",
        ),
        Panel("How long does one inference take?", quantiles("inference_seconds"), unit="s"),
        Panel(
            "How busy are the lanes?",
            {"{{instance}}": f"{per_second('inference_seconds_sum', 'instance')} / (sum by (instance) (@lanes) > 0)"},
            unit="percentunit",
            note="100% is every lane without a pause. Above 90% only more replicas or larger batches help.",
        ),
        Panel(
            "How busy is the loop?",
            {"{{instance}}": "rate(@loop_seconds_total[$__rate_interval])"},
            unit="percentunit",
            note="Processor time of the thread that decodes and encodes. Near 100% it is the limit: more replicas, or "
            "binary encodings in the place of JSON.",
        ),
        Panel(
            "How many rows a second?", {"rows": per_second("batch_rows_total")}, note="Through the model, all replicas."
        ),
    ),
    "Batching": (
        Panel(
            "Why do batches close?",
            {"{{closed_by}}": per_second("batches_total", "closed_by")},
            unit="ops",
            note="size, tokens, bytes: full by that limit. memory: the device had none for more. linger: no other "
            "request came in time, or a deadline is near. pressure: too much in flight. drain: stopping.",
            is_stacked=True,
        ),
        Panel(
            "How many rows in a batch?",
            {
                "{{instance}}": f"{per_second('batch_rows_total', 'instance')} / "
                f"{per_second('batches_total', 'instance')}"
            },
            note="Mean.",
        ),
        Panel(
            "How full are batches?",
            {
                "{{instance}}": f"{per_second('batch_rows_total', 'instance')} / "
                f"{per_second('batches_total', 'instance')} / max by (instance) (@max_batch_rows)"
            },
            unit="percentunit",
            note="Mean, as a part of MAX_BATCH_SIZE, which MAX_BATCH_TOKENS or short memory may keep out of reach.",
        ),
        Panel(
            "How long for company and a lane?",
            {**quantiles("batch_wait_seconds"), "linger": "max(@linger_seconds)"},
            unit="s",
            note="About the linger (LINGER_MS, or as `auto` chose) when there is little to do; more when lanes work.",
        ),
        Panel(
            "How near are the bounds?",
            {
                "records": "max(@records_in_flight / @records_in_flight_limit)",
                "rows": "max(@rows_in_flight / @rows_in_flight_limit)",
                "bytes": "max(@in_flight_bytes / @in_flight_limit_bytes)",
            },
            unit="percentunit",
            note="Taken and not settled, on the fullest replica. At 100% nothing is taken. With ORDER key or none also "
            "records that are settled behind one that is not.",
            bad_above=1,
        ),
        Panel(
            "Who has stopped fetching?",
            {"{{instance}}": "@paused"},
            note="1: too much is in flight, because a broker is away or one partition waits.",
            bad_above=1,
        ),
    ),
    "Buckets": (
        Panel(
            "How much is padding?",
            {
                "{{bucket}}": per_second('elements_total{kind="padding"}', "bucket")
                + f" / {per_second('elements_total', 'bucket')}"
            },
            unit="percentunit",
            note="Of the elements that the model runs on, by the length that they are padded to. A bucket where it is "
            "most and rows are many wants a boundary below it: inference-worker profile --lengths. Nothing here "
            "without BATCHING__BUCKETS.",
        ),
        Panel(
            "Which buckets do rows run in?",
            {"{{bucket}}": per_second("bucket_rows_total", "bucket")},
            note="Rows a second.",
            is_stacked=True,
        ),
        Panel(
            "How many rows in a batch, by bucket?",
            {
                "{{bucket}}": f"{per_second('bucket_rows_total', 'bucket')} / "
                f"{per_second('bucket_batches_total', 'bucket')}"
            },
            note="Mean. One that stays near 1 is a bucket too many, or has long rows under MAX_BATCH_TOKENS.",
        ),
    ),
    "Errors": (
        Panel(
            "How much is answered in time?",
            {
                "results in time": f"{ANSWERS} - {per_second('rejections_total')} - {per_second('late_answers_total')}",
                "late results": per_second("late_answers_total"),
                "refused as too late": per_second('rejections_total{code="DEADLINE_EXCEEDED"}'),
            },
            unit="reqps",
            note="Late results were run: the forecast was wrong. Refusals cost no inference; while they last, there "
            "are too few workers. A request without a deadline is in time.",
            is_stacked=True,
        ),
        Panel(
            "Why are requests answered with an error?",
            {"{{code}}": per_second("rejections_total", "code")},
            unit="reqps",
            note="Each is in the dead-letter topic too, where there is one: inference-worker dead-letters list.",
            is_stacked=True,
        ),
        Panel(
            "Does the model fail?",
            {
                "inferences failed": per_second('inference_runs_total{result="failed"}'),
                "device suspected": per_second("device_probes_total"),
            },
            unit="ops",
            note="A failed batch is halved until the bad request is alone: one bad request fails several times.",
        ),
        Panel(
            "Does the model's process end?",
            {
                "{{reason}}": "sum by (reason) (increase(@model_hosts_ended_total[$__rate_interval]))",
                "seconds without {{instance}}": "@model_host_away_seconds",
            },
            note="The worker starts another one. crash: in native code. hang: longer than RUN_TIMEOUT_S. killed: by "
            "the kernel, for memory, or by hand. Nothing here with MODEL__HOST=thread.",
            bad_above=1,
        ),
        Panel(
            "Who starts again and again?",
            {"{{instance}}": "changes(@process_start_time_seconds[15m])"},
            note="Starts in a quarter of an hour at one address.",
            bad_above=2,
        ),
        Panel(
            "Are requests deleted before they are read?",
            {"{{instance}}": "increase(@requests_deleted_total[$__rate_interval])"},
            note="By retention: they get no answer. Counted in offsets.",
            bad_above=1,
        ),
    ),
    "Kafka": (
        Panel(
            "How far is each partition behind?",
            {"{{topic}}/{{partition}}": "sum by (topic, partition) (@consumer_lag)"},
            note="From the commit to the end as last fetched: it stands still while fetching is paused.",
        ),
        Panel(
            "Is a partition stuck?",
            {"{{topic}}/{{partition}}": "max by (topic, partition) (@oldest_unsettled_seconds)"},
            unit="s",
            note="Age of its oldest request that is taken and not settled. Commits wait for it, whatever the ORDER.",
            bad_above=120,
        ),
        Panel(
            "Does a partition give nothing?",
            {"{{topic}}/{{partition}}": "max by (topic, partition) (@partition_stalled_seconds)"},
            unit="s",
            note="Its log goes on, and its broker answers: a transaction of another producer that stays open, or a "
            "damaged batch.",
            bad_above=120,
        ),
        Panel(
            "Do partitions wait for a schema?",
            {"{{instance}}": "@partitions_waiting_for_schema", "seconds away {{instance}}": "@registry_away_seconds"},
            note="And since when the schema registry does not answer. Nothing here without a registry.",
        ),
        Panel(
            "Which partition is behind?",
            {"{{topic}}/{{partition}}": "max by (topic, partition) (@oldest_request_age_seconds)"},
            unit="s",
            note="Age of its oldest request that is taken and not settled, since its publication.",
            bad_above=60,
        ),
        Panel(
            "How many partitions does no replica read?",
            {
                "{{topic}}": "max by (topic) (@request_topic_partitions) - "
                "count by (topic) (count by (topic, partition) (@oldest_unsettled_seconds))"
            },
            note="Of each topic, where all replicas are chosen.",
            bad_above=1,
        ),
        Panel(
            "Which topic takes no answers?",
            {"{{topic}}": "sum by (topic) (@undelivered_messages)"},
            note="Sent and not acknowledged, once a second. Some under load; a line that only climbs is a topic that "
            "cannot be written.",
        ),
        Panel(
            "Can the brokers be reached?",
            {"{{instance}} {{client}}": "@broker_connections"},
            note="Open connections. 0: none.",
        ),
        Panel(
            "Are offsets committed?",
            {"{{instance}}": "@commit_lag_seconds"},
            unit="s",
            note="Since when something could be committed and no commit got through.",
            bad_above=30,
        ),
        Panel(
            "Do partitions come and go?",
            {"{{event}}": "sum by (event) (increase(@rebalances_total[$__rate_interval]))"},
            note="lost: taken without asking, because the group heard nothing of this replica.",
        ),
    ),
    "Exactly once": (
        Panel(
            "Do transactions get through?",
            {
                "{{result}}": per_second("transactions_total", "result"),
            },
            unit="ops",
            note="What a failed one held is taken back and read again. Nothing here under at least once.",
        ),
        Panel(
            "How long does the end of one take?",
            quantiles("transaction_end_seconds"),
            unit="s",
            note="No answer leaves meanwhile; requests are taken and run.",
        ),
        Panel(
            "How much of the time do they end?",
            {"{{instance}}": per_second("transaction_end_seconds_sum", "instance")},
            unit="percentunit",
            note="Towards 100% answers hardly leave: a longer COMMIT_INTERVAL_MS makes fewer, larger transactions.",
        ),
    ),
    "State by key": (
        Panel(
            "Of how many keys is there a state?",
            {"{{instance}}": "@states"},
            note="In memory and in STATE__DIRECTORY. Nothing in this row without STATE__TENSORS.",
        ),
        Panel(
            "How large are they?",
            {"{{instance}}": "@state_bytes"},
            unit="bytes",
            note="Their tensors, in memory or in the files of STATE__DIRECTORY; some 250 bytes a key come on top.",
        ),
        Panel(
            "Do requests wait for their key?",
            {"{{instance}}": "@requests_waiting_for_key"},
            note="For an earlier one of the same key. Many: a key comes more often than its requests run one by one.",
        ),
        Panel(
            "Which partitions wait for their states?",
            {"{{instance}}": "@restoring_partitions", "records to be read {{instance}}": "@restore_records_left"},
            note="Nothing of them is taken before the changelog is read back.",
        ),
        Panel(
            "How many keys are looked up on disk, or states in the store outside?",
            {"{{instance}}": per_second("states_loaded_total", "instance")},
            unit="ops",
            note="Near the rate of requests: raise STATE__KEYS_IN_MEMORY.",
        ),
        Panel(
            "Does the store outside answer?",
            {"{{instance}}": "@state_store_away_seconds"},
            unit="s",
            note="Since when it does not; 0: it does. Nothing here and beside it without STATE__STORE.",
            bad_above=30,
        ),
        Panel(
            "How long does the store outside take?",
            quantiles("state_store_round_trip_seconds"),
            unit="s",
            note="One read of all states that are missing, or one write of a batch's.",
        ),
    ),
    "Process": (
        Panel(
            "How much memory?",
            {
                "{{instance}}": "@process_resident_memory_bytes",
                "model {{instance}}": "@model_host_process_resident_memory_bytes",
                "limit (0: none)": "max(@memory_limit_bytes)",
            },
            unit="bytes",
            note="The worker's process and the one that has the model; the limit is for both together.",
        ),
        Panel(
            "How much processor time?",
            {
                "{{instance}}": "rate(@process_cpu_seconds_total[$__rate_interval])",
                "model {{instance}}": "rate(@model_host_process_cpu_seconds_total[$__rate_interval])",
            },
            unit="percentunit",
            note="100% is one core.",
        ),
        Panel(
            "What is running?",
            {
                "model": "max by (instance, name, version, file, device) (@model_info)",
                "build": "max by (instance, build, python) "
                '(label_replace(@build_info, "build", "$1", "version", "(.*)"))',
            },
            kind="table",
            width=WIDTH,
        ),
    ),
}
