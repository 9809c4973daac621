"""What `check` writes of the group: how many requests wait, and what may be counted among them."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from worker.codecs.examples import Encoding, encode_request
from worker.commands.check.report import DeliveryFacts, ModelFacts, Report
from worker.commands.check.screen import delivery_rows, group_rows, show
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec
from worker.kafka.cluster.access import Finding
from worker.kafka.cluster.survey import GroupFacts, Progress
from worker.settings.effective import Effective

SHOWN = ("BOOTSTRAP_SERVERS", "REQUEST_TOPICS")

MARKERS = "transaction markers count as one each"


@pytest.mark.parametrize(
    ("waiting", "told", "has_note"),
    [
        (0, "0 requests wait (", False),
        (1, "1 request waits (", True),
        (3, "3 requests wait (", True),
        (4, "4 requests wait (", False),
        (1000, "1,000 requests wait (", False),
    ],
)
def test_a_lag_that_may_be_markers_alone_says_so(waiting: int, told: str, has_note: bool) -> None:  # noqa: FBT001 - a case
    """One for each of three partitions, and no more."""
    rows = list(group_rows(GroupFacts("empty", 0, [Progress("requests", 3, 3, waiting, 0)])))

    assert rows[1][0] == "requests"
    assert rows[1][1].startswith(told)
    assert (("", MARKERS) in rows) == has_note


@pytest.mark.parametrize(("order", "told"), [("partition", None), ("key", "answers of one key"), ("none", "none: ")])
def test_less_order_is_told_with_what_a_reader_does_then(order: str, told: str | None) -> None:
    """The order that readers expect is not worth a line."""
    rows = dict(delivery_rows(DeliveryFacts("at_least_once", order, 200)))

    assert ("order" in rows) == (told is not None)
    assert told is None or (told in rows["order"] and "keeps each `source`" in rows["order"])


def test_what_a_gpu_leaves_to_the_cpu_is_told() -> None:
    """By operator, with how many."""
    report = Report("command")
    left = {"MaxPool": 12, "GRU": 1}
    report.model = ModelFacts("m", "1", "cuda:0", "why", ["x"], ["y"], None, None, 1.0, {1: 0.001}, left_to_cpu=left)
    file = io.StringIO()

    show(Console(file=file, width=80), report, show_all=False)

    assert "left to the CPU   13 nodes: 12 MaxPool, 1 GRU" in file.getvalue()


@pytest.mark.parametrize(
    ("fixed_rows", "told"),
    [
        (8, "of exactly 8 rows, short ones are padded: so it was exported"),
        (1, "none: the model was exported for one row, so each runs alone; export it with its batch axis left open"),
    ],
)
def test_batches_of_a_fixed_size_are_told(fixed_rows: int, told: str) -> None:
    """Since MAX_BATCH_SIZE says another number. Of one row there is nothing to pad, and nothing to gain."""
    report = Report("inference-worker check --json")
    facts = ModelFacts("m", "1", "cpu", "why", ["x"], ["y"], None, None, 1.0, {1: 0.001}, fixed_rows=fixed_rows)
    report.model = replace(facts, fixed_why="so it was exported")
    file = io.StringIO()

    show(Console(file=file, width=80), report, show_all=False)

    assert told in " ".join(file.getvalue().split())


def test_what_did_not_show_of_the_rows_is_told() -> None:
    """It is no reason for alarm, and no reason to be sure."""
    report = Report("inference-worker check --json")
    report.model = ModelFacts("m", "1", "cpu", "why", ["x"], ["y"], None, None, 1.0, {1: 0.001}, doubt="y: the same")
    file = io.StringIO()

    show(Console(file=file, width=80), report, show_all=False)

    assert "independence      y: the same" in file.getvalue()


def test_what_closes_a_full_batch_is_told() -> None:
    """Where it has fewer rows than MAX_BATCH_SIZE says."""
    report = Report("inference-worker check --json")
    seconds = {1: 0.001, 2048: 0.1}
    report.model = ModelFacts(
        "m", "1", "cpu", "why", ["x"], ["y"], None, None, 1.0, seconds, closed_by="MAX_BATCH_BYTES"
    )
    file = io.StringIO()

    show(Console(file=file, width=80), report, show_all=False)

    assert "full batches       close at 2,048 rows, by MAX_BATCH_BYTES" in file.getvalue()


def test_a_length_that_was_made_up_is_told() -> None:
    """A text of 16 tokens takes a fraction of one of 256."""
    report = Report("inference-worker check --json")
    report.model = ModelFacts("m", "1", "cpu", "why", ["x"], ["y"], None, None, 1.0, {1: 0.001}, {"ids:1": 16})
    file = io.StringIO()

    show(Console(file=file, width=80), report, show_all=False)

    assert "ids:1 16 long: the model's file leaves that open" in file.getvalue()
    assert report.as_json()["model"]["open_axes"] == {"ids:1": 16}


def test_the_function_that_publishes_can_be_pasted() -> None:
    """A shell takes its lines as they stand."""
    report = Report("inference-worker check --json")
    signature = Signature("m", "1", (TensorSpec("x", "FP32", (2,)),), (TensorSpec("y", "FP32", (2,)),))
    report.examples = {Encoding.JSON: encode_request(signature, {"x": np.zeros((1, 2), np.float32)}, Encoding.JSON)}
    values = ("127.0.0.1:9092", "requests")
    report.settings = [
        Effective(f"WORKER_KAFKA__{name}", value, is_default=False) for name, value in zip(SHOWN, values, strict=True)
    ]
    file = io.StringIO()

    show(Console(file=file, width=80), report, show_all=True)

    assert (
        "  publish() { kcat -P -b 127.0.0.1:9092 -X partitioner=murmur2_random \\\n"
        '      -X enable.idempotence=true -t requests -k example "$@"; }\n'
    ) in file.getvalue()


EVIL = "evil\x1b]0;pwned\x07\x9b[31m"


def test_nothing_of_a_model_or_a_cluster_reaches_a_terminal_raw() -> None:
    """Tensors and problems are named by strangers; what is not printable is escaped, in commands too."""
    report = Report("inference-worker check --json")
    spec = TensorSpec(EVIL, "FP32", (2,))
    signature = Signature(EVIL, EVIL, (spec,), (spec,))
    feeds = {EVIL: np.zeros((1, 2), np.float32)}
    report.examples = {kind: encode_request(signature, feeds, kind) for kind in Encoding}
    report.settings = [Effective(f"WORKER_KAFKA__{name}", EVIL, is_default=False) for name in SHOWN]
    report.model = ModelFacts(EVIL, EVIL, "cpu", EVIL, [str(spec)], [str(spec)], 8, "<f4", 1.0, {1: 0.001})
    report.problems = [Finding(EVIL, EVIL)]
    file = io.StringIO()

    show(Console(file=file, width=80), report, show_all=True)

    assert "evil\\x1b]0;pwned\\x07\\x9b[31m" in file.getvalue()
    assert all(line.isprintable() for line in file.getvalue().split("\n"))
