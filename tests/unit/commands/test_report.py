"""The report of `check`, in the terminal and as JSON."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from worker.commands.report import Report, show
from worker.settings.effective import Effective

GOLDEN = Path(__file__).parents[2] / "golden" / "check.txt"
EVIL = "evil\x1b]0;pwned\x07\x9b[31m"


def shown(report: Report) -> str:
    file = io.StringIO()
    show(Console(file=file, width=80), report)
    return file.getvalue()


def full_report() -> Report:
    """A report with each of its rows."""
    report = Report()
    report.settings = [
        Effective("WORKER_KAFKA__GROUP_ID", "scores", is_default=False),
        Effective("WORKER_BATCHING__LANES", 1, is_default=True),
    ]
    report.model = {"takes": "ids INT64[batch, tokens]", "device": f"cuda:0: {'why it is there ' * 5}"}
    report.cluster = {"brokers": "a:9092, b:9092", "requests": "requests: 3 partitions, 3 replicas"}
    report.created = {"answers": 1}
    headers = [("content-type", b"application/json")]
    report.example = {"request": (headers, b'{"inputs":[]}'), "answer": ([*headers, ("status", b"ok")], bytes(5000))}
    report.warnings = ["something to know"]
    report.refuse(["something is wrong"], 2)
    return report


def test_a_report_is_written_with_the_verdict_at_its_end() -> None:
    """Problems come just before it, where the reader looks first. No line of prose is wider than the terminal."""
    written = shown(full_report())

    assert written == GOLDEN.read_text()
    assert written.rstrip().splitlines()[-1] == "These settings are not fit to serve: 1 problem, exit code 2."
    assert shown(Report()) == "A worker with these settings starts.\n"


def test_all_of_it_comes_as_one_object() -> None:
    """Scripts read it; it includes the bytes of the example."""
    found = full_report().as_json()

    assert (found["starts"], found["exit_code"]) == (False, 2)
    assert found["problems"] == [{"text": "something is wrong"}]
    assert found["example"]["answer"]["headers"] == {"content-type": "application/json", "status": "ok"}
    assert found["cluster"]["brokers"] == "a:9092, b:9092"


def test_nothing_of_a_model_or_a_cluster_reaches_a_terminal_raw() -> None:
    """Strangers name tensors and problems, so control characters are escaped, in commands too."""
    report = Report()
    report.settings = [Effective("WORKER_KAFKA__GROUP_ID", EVIL, is_default=False)]
    report.model, report.cluster = {"takes": EVIL}, {EVIL: EVIL}
    report.example = {"request": ([(EVIL, EVIL.encode())], EVIL.encode()), "answer": ([], b"\x1b")}
    report.problems = [EVIL]

    written = shown(report)

    assert "evil\\x1b]0;pwned\\x07\\x9b[31m" in written
    assert all(line.isprintable() for line in written.split("\n"))
