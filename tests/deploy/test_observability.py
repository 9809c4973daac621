"""Alerts and dashboard on a real worker's metrics: all names exist, and no alert fires without a reason.

Needs promtool and prometheus for the rules' own tests and for the panels; without them these are skipped.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr

from deploy.observability.dashboard import DASHBOARD, expressions, text
from deploy.observability.panels import ROWS
from tests.deploy.prometheus import Prometheus
from tests.kafka.cluster import Cluster, Sent, fresh
from tests.kafka.publisher import SteadyPublisher
from tests.kafka.replica import Replica
from tests.models import save, text_scores
from tests.readme import blocks
from worker.kafka.client.membership import resolve_transactional_id
from worker.kafka.cluster.topics import needed, needed_for_transactions, wished
from worker.settings import KafkaSettings, ModelSettings
from worker.telemetry.metrics import INFERENCE
from worker.tools.kafka.embedded import EmbeddedBroker

DEPLOY = Path(__file__).parents[2] / "deploy"
ALERTS = DEPLOY / "observability" / "alerts.yml"
RULES: list[dict[str, Any]] = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
NAMES = [rule["alert"] for rule in RULES]
BY_SEVERITY = [(rule["alert"], rule["labels"]["severity"]) for rule in RULES]

TOPICS = ("requests", "answers", "rejected")
RATE = 200.0  # requests a second
BAD_EVERY = 50  # one request in so many is invalid: too few for an alert
LONGEST = 32
BUCKETS = {"input_ids": {"axis": 1, "boundaries": [16, LONGEST]}}
SCRAPES = 6

tool = pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool on the PATH")
server = pytest.mark.skipif(shutil.which("prometheus") is None, reason="no prometheus on the PATH")


class Sample(NamedTuple):
    """One line of a page of metrics."""

    name: str
    labels: Mapping[str, str]


@pytest.fixture(scope="module", params=["at_least_once", "exactly_once"])
def guarantee(request: pytest.FixtureRequest) -> str:
    """Each guarantee, because both have panels and alerts of their own."""
    return str(request.param)


@pytest.fixture(scope="module")
def busy(guarantee: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replica]:
    """A worker under steady load with a few bad requests, once it has counted some of each kind."""
    folder = tmp_path_factory.mktemp("busy")
    with ExitStack() as stack:
        if guarantee == "exactly_once":  # a mock broker keeps no offsets of transactions
            cluster: Cluster = request.getfixturevalue("kafka")
            requests, answers, rejected = (cluster.create_topic(name) for name in TOPICS)
        else:
            broker = stack.enter_context(EmbeddedBroker())
            cluster = Cluster(broker.bootstrap_servers)
            requests, answers, rejected = (fresh(name) for name in TOPICS)
            for topic in (requests, answers, rejected):
                broker.create_topic(topic)
        settings = {
            "KAFKA__BOOTSTRAP_SERVERS": cluster.bootstrap_servers,
            "KAFKA__REQUEST_TOPICS": requests,
            "KAFKA__RESPONSE_TOPIC": answers,
            "KAFKA__DEAD_LETTER_TOPIC": rejected,
            "KAFKA__GROUP_ID": fresh("group"),
            "KAFKA__CONFIG": '{"fetch.wait.max.ms": "5"}',  # data does not wake the mock broker's waiting fetch
            "MODEL__PATH": str(save(text_scores(), folder)),
            "MODEL__DEVICE": "cpu",
            "MODEL__INPUT_DEFAULTS": '{"attention_mask": 1, "token_type_ids": 0}',
            "BATCHING__BUCKETS": json.dumps(BUCKETS),
            "DELIVERY__GUARANTEE": guarantee,
        }

        def make(number: int) -> tuple[str, Sent]:
            value = b"no request" if number % BAD_EVERY == 0 else text_of(1 + number % LONGEST)
            return requests, Sent(b"%d" % number, value)

        replica = stack.enter_context(Replica(settings, folder)).wait_until_ready()
        stack.enter_context(SteadyPublisher(cluster, make, RATE))
        _wait_for_traffic(replica)
        yield replica


def text_of(length: int) -> bytes:
    """The value of a request with one text."""
    ids = {"name": "input_ids", "shape": [1, length], "datatype": "INT64", "data": [1] * length}
    return json.dumps({"inputs": [ids]}).encode()


def _wait_for_traffic(replica: Replica) -> None:
    deadline = time.monotonic() + 30.0
    while "inference_worker_undelivered_messages{" not in (page := replica.text("/metrics")) or (
        "inference_worker_consumer_lag{" not in page or replica.metric("inference_worker_rejections_total") < 3
    ):
        assert time.monotonic() < deadline, page
        time.sleep(0.2)


@pytest.fixture(scope="module")
def prometheus(busy: Replica, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that has scraped the busy worker for a few seconds."""
    with Prometheus(tmp_path_factory.mktemp("prometheus"), ALERTS, [_address(busy)]) as prometheus:
        prometheus.wait_for_scrapes(SCRAPES)
        yield prometheus


def _address(replica: Replica) -> str:
    return f"127.0.0.1:{replica._port}"


def samples(page: str) -> list[Sample]:
    return [Sample(s.name, s.labels) for family in text_string_to_metric_families(page) for s in family.samples]


def named(expression: str) -> Iterator[Sample]:
    """The metrics of an expression, with the label values that it names."""
    for name, matchers in re.findall(r"\b((?:inference_worker|process)_\w+)(?:\{([^}]*)\})?", expression):
        yield Sample(name, {k: v for k, v in re.findall(r'(\w+)="(.*?)"', matchers) if k != "job"})


def test_what_alerts_and_panels_name_is_there(busy: Replica) -> None:
    """A renamed metric or a wrong label value would keep an alert silent for ever."""
    page = samples(busy.text("/metrics"))
    queries = [rule["expr"] for rule in RULES] + [query for _, _, query in expressions()] + asked_by_the_runbook()

    wanted = [sample for query in queries for sample in named(query)]
    missing = [sample for sample in wanted if not any(_is_it(sample, shown) for shown in page)]

    assert len(wanted) > len(queries)
    assert not missing


def asked_by_the_runbook() -> list[str]:
    """The runbook's queries without comments; an indented line continues the one before."""
    [block] = [block.text for block in blocks(DEPLOY / "README.md") if block.language == "promql"]
    return re.sub(r" *#.*", "", block).replace("\n ", " ").splitlines()


def _is_it(wanted: Sample, shown: Sample) -> bool:
    return wanted.name == shown.name and wanted.labels.items() <= shown.labels.items()


def test_what_the_runbook_greps_for_is_there(busy: Replica) -> None:
    """Each word of each `curl … | grep -E` finds lines on a worker's page."""
    lines = [line for line in busy.text("/metrics").splitlines() if not line.startswith("#")]
    asked = re.findall(r"metrics \| grep -E '([^']+)'", (DEPLOY / "README.md").read_text())

    words = {word for pattern in asked for word in pattern.split("|")}

    assert {"request_age_seconds_bucket", "consumer_lag"} <= words
    assert {word for word in words if not any(word in line for line in lines)} == set()


@tool
@pytest.mark.parametrize("name", ["prometheus.yml", "prometheus-kubernetes.yml"])
def test_prometheus_accepts_the_configuration_and_its_rules(name: str) -> None:
    """The test runs promtool as people do before a deployment."""
    said = promtool("check", "config", name)
    if "kubernetes_sd_configs not found" in said:
        pytest.skip("this promtool was built without Kubernetes")

    assert f"SUCCESS: {len(RULES)} rules found" in said, said
    assert "FAILED" not in said, said


def test_half_of_the_longest_timeout_can_be_seen() -> None:
    """No quantile exceeds a histogram's last bound: InferenceWorkerInferenceSlow would be silent for ever."""
    timeout = ModelSettings.model_json_schema()["properties"]["run_timeout_s"]

    assert INFERENCE.bounds[-1] > 0.5 * timeout["maximum"]


@tool
def test_each_alert_fires_when_it_should_and_not_before() -> None:
    """None fires in normal traffic."""
    said = promtool("test", "rules", "alerts_test.yml")

    assert "SUCCESS" in said, said
    assert "FAILED" not in said, said


def promtool(*arguments: str) -> str:
    """Promtool's output."""
    return subprocess.run(
        ["promtool", *arguments],
        cwd=ALERTS.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=240,  # it takes 4 s of a core
    ).stdout


def test_each_alert_has_a_test_of_its_own() -> None:
    """The test's name begins with the alert's name."""
    tests = yaml.safe_load(ALERTS.with_name("alerts_test.yml").read_text())["tests"]

    assert {name for name in NAMES if not any(test["name"].split(",")[0] == name for test in tests)} == set()


@server
def test_a_busy_worker_sets_off_no_alert(prometheus: Prometheus) -> None:
    """Each rule is evaluated on a real worker's metrics, and none fires."""
    rules = prometheus.rules()

    assert [rule["name"] for rule in rules] == NAMES
    assert [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] != "ok"] == []
    assert [rule["name"] for rule in rules if rule["state"] != "inactive"] == []


@server
def test_no_panel_is_empty(prometheus: Prometheus, busy: Replica, guarantee: str) -> None:
    """Every panel's queries give numbers for a worker under load, except transactions where there are none.

    No partition has states to read back here, so that time is unknown.
    """
    empty = []
    for panel, legend, query in expressions():
        if panel in ROWS["Exactly once"] and guarantee != "exactly_once":
            continue
        found = prometheus.query(_chosen(query, busy))
        is_unknown = any(math.isnan(value) for _, value in found) and panel not in ROWS["State by key"]
        if not found or is_unknown:
            empty.append((panel.title, legend, found))

    assert not empty


def _chosen(query: str, busy: Replica) -> str:
    """The query as Grafana sends it with all our replicas chosen, at this scrape interval."""
    for variable, value in {"$job": "inference-worker", "$instance": _address(busy), "$__rate_interval": "5s"}.items():
        query = query.replace(variable, value)
    return query


def test_every_panel_shows_the_replicas_that_are_chosen_and_nothing_else() -> None:
    """Every process in Prometheus has `up` and a memory, so "all" must be a list of our replicas, not a pattern."""
    for variable in json.loads(DASHBOARD.read_text())["templating"]["list"]:
        assert "allValue" not in variable
    for _, _, query in expressions():
        assert len(re.findall(r"\b(?:inference_worker_|process_|up\{|ALERTS)", query)) == query.count('job=~"$job"')


def test_the_dashboard_is_that_of_the_table() -> None:
    """After a change of panels.py, run `python -m deploy.observability.dashboard`."""
    assert DASHBOARD.read_text() == text()


def test_the_runbook_has_a_heading_for_each_alert() -> None:
    """The headings are the alerts' names in the file's order, without removed alerts."""
    headings = re.findall(r"^### (InferenceWorker\w+)$", (DEPLOY / "README.md").read_text(), re.MULTILINE)

    assert headings == list(dict.fromkeys(NAMES))


def test_the_deploy_guide_lists_the_rights_that_a_worker_asks_for() -> None:
    """The list includes a changelog's and reply topics' rights; necessary rights come first."""
    table = (DEPLOY / "README.md").read_text().split("<!-- rights -->\n")[1].split("<!-- end of rights -->")[0]
    rows = [row.split(" | ") for row in table.splitlines()[2:]]
    listed = [
        (without.startswith("no start"), operation, *resource)
        for operations, resources, without in rows
        for operation in operations.strip("| ").split(", ")
        for resource in re.findall(r"(topic|group|transactional-id) `([\w-]+)`", resources)
    ]
    kafka = KafkaSettings(
        bootstrap_servers="broker:9093",
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="worker",
        sasl_password=SecretStr("secret"),
        request_topics=("requests",),
        response_topic="answers",
        dead_letter_topic="rejected",
        reply_topics=("replies",),
        changelog_topic="my-model-state",
        group_id="my-model",
    )

    transactions = needed_for_transactions(resolve_transactional_id(None, kafka.group_id))
    asked = [(True, right) for right in (*needed(kafka), transactions)] + [(False, right) for right in wished(kafka)]
    assert sorted(listed) == sorted((must, right.operation, right.kind, right.name) for must, right in asked)
    assert listed == sorted(listed, key=lambda right: not right[0])


@pytest.mark.parametrize("rule", RULES, ids=map(" ".join, BY_SEVERITY))
def test_an_alert_says_what_is_wrong_and_where_to_read_on(rule: Mapping[str, Any]) -> None:
    """An operator at three in the morning does not want to search."""
    said = rule["annotations"]

    assert set(said) == {"summary", "description", "runbook_url"}
    assert said["runbook_url"] == f"https://runbooks.example.com/inference-worker#{rule['alert'].lower()}"
    assert rule["labels"]["severity"] in {"warning", "critical"}
