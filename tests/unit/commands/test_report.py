"""What `check` shows of its findings, in the terminal and as JSON."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from worker.commands.report import ClusterFacts, Example, ModelFacts, Report, show
from worker.kafka.client.membership import Membership
from worker.kafka.cluster.access import Finding
from worker.kafka.cluster.examination import TopicFacts
from worker.kafka.cluster.survey import GroupFacts, Progress, Survey
from worker.settings.effective import Effective
from worker.stores.server import StoreFacts

GOLDEN = Path(__file__).parents[2] / "golden" / "check.txt"
EVIL = "evil\x1b]0;pwned\x07\x9b[31m"


def shown(report: Report) -> str:
    file = io.StringIO()
    show(Console(file=file, width=80), report, show_all=False)
    return file.getvalue()


def full_report() -> Report:
    """One with each of its rows."""
    report = Report()
    report.settings = [
        Effective("WORKER_KAFKA__GROUP_ID", "scores", is_default=False),
        Effective("WORKER_BATCHING__LANES", 1, is_default=True),
    ]
    report.model = ModelFacts(
        "m",
        "1",
        "cuda:0",
        "WORKER_MODEL__DEVICE is cuda",
        ["ids INT64[batch, tokens]"],
        ["y FP32[batch, 3]"],
        16,
        "<f4",
        1.5,
        {1: 0.001, 2048: 0.1},
        {"ids:1": 16},
        8,
        "so it was exported",
        ["input ids axis 1 to 16, 32"],
        "y: one value for all rows",
        "WORKER_BATCHING__MAX_BATCH_BYTES",
        ["h FP32[batch, 4] from h_out", "16 bytes a key"],
        {"MaxPool": 12, "GRU": 1},
    )
    kept = {"cleanup.policy": "delete", "retention.ms": "604800000", "max.message.bytes": "1048588"}
    dense = {"cleanup.policy": "compact", "retention.ms": "-1", "max.message.bytes": "1048588"}
    topics = [
        TopicFacts("requests", "REQUEST_TOPICS", 3, 3, kept),
        TopicFacts("answers", "RESPONSE_TOPIC", 1, 3, {**dense, "cleanup.policy": "delete"}),
        TopicFacts("rejected", "DEAD_LETTER_TOPIC", 1, 3, None),
        TopicFacts("scores-state", "CHANGELOG_TOPIC", 3, 3, dense),
    ]
    group = GroupFacts("empty", 0, [Progress("requests", 3, 3, 2, 0)])
    membership = Membership("consumer", "KIP-848, the broker's own", 45.0)
    survey = Survey([f"b{n}:9092" for n in range(6)], topics, group, {})
    report.guarantee, report.transactional_id = "exactly_once", "scores-*"
    report.cluster = ClusterFacts(survey, False, membership, {"answers": 1_048_588}, True)
    report.store = StoreFacts("redis://s", "Valkey 8", ())
    report.created = {"answers": 1}
    headers = [("content-type", b"application/json")]
    report.example = Example(headers, b'{"inputs":[]}', [*headers, ("status", b"ok")], bytes(5000))
    report.warnings = [Finding("something to know")]
    report.refuse([Finding("something is wrong", "kafka-acls.sh --add")], 2)
    return report


def test_a_report_is_written_with_the_verdict_at_its_end() -> None:
    """Problems stand before it, where the reader looks first; no line of prose is wider than the terminal."""
    written = shown(full_report())

    assert written == GOLDEN.read_text()
    assert written.rstrip().splitlines()[-1] == "A worker with these settings ends with exit code 2: 1 problem."
    assert shown(Report()) == "A worker with these settings starts.\n"


def test_a_model_of_one_row_is_told_to_be_exported_again() -> None:
    """There is nothing to pad, and nothing to gain from batches."""
    report = Report()
    report.model = ModelFacts("m", "1", "cpu", "why", ["x"], ["y"], None, None, 1.0, {1: 0.001}, fixed_rows=1)

    assert "export it with its batch axis left open" in " ".join(shown(report).split())


def test_all_of_it_comes_as_one_object() -> None:
    """For scripts: the bytes of the example among it."""
    found = full_report().as_json()

    assert (found["starts"], found["exit_code"]) == (False, 2)
    assert found["problems"] == [{"text": "something is wrong", "command": "kafka-acls.sh --add"}]
    assert found["example"]["answer"]["headers"] == {"content-type": "application/json", "status": "ok"}
    assert found["cluster"]["survey"]["topics"][0]["partitions"] == 3


def test_nothing_of_a_model_or_a_cluster_reaches_a_terminal_raw() -> None:
    """Tensors and problems are named by strangers; control characters are escaped, in commands too."""
    report = Report()
    report.settings = [Effective("WORKER_KAFKA__GROUP_ID", EVIL, is_default=False)]
    report.model = ModelFacts(EVIL, EVIL, "cpu", EVIL, [EVIL], [EVIL], 8, "<f4", 1.0, {1: 0.001})
    report.example = Example([(EVIL, EVIL.encode())], EVIL.encode(), [], b"\x1b")
    report.problems = [Finding(EVIL, EVIL)]

    written = shown(report)

    assert "evil\\x1b]0;pwned\\x07\\x9b[31m" in written
    assert all(line.isprintable() for line in written.split("\n"))
