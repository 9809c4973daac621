"""`publish` and `consume` on a real Kafka, with real workers: each request goes out once, each answer is recognised."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from confluent_kafka import Producer
from typer.testing import CliRunner

from tests.kafka.cluster import TIMEOUT, Cluster, Sent, fresh
from tests.kafka.scene import RAW_HEADER, WIDTH, Scene
from worker import cli

ENCODINGS = ["rows", "json", "protobuf", "binary"]


class Run(NamedTuple):
    """A command's standard output, standard error and exit code."""

    output: str
    errors: str
    code: int

    @property
    def documents(self) -> list[dict[str, Any]]:
        """Standard output as JSON lines."""
        return [json.loads(line) for line in self.output.splitlines()]


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    return {f"WORKER_{name}": value for name, value in settings.items()}


def run(scene: Scene, *arguments: str | Path) -> Run:
    """Run the command in this process, with the scene's settings."""
    found = CliRunner().invoke(cli.app, [str(word) for word in arguments], env=environment(scene.settings))
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exc_info
    return Run(found.stdout, found.stderr, found.exit_code)


def started(scene: Scene, *arguments: str) -> subprocess.Popen[bytes]:
    """Start the command as a process of its own, with pipes."""
    return subprocess.Popen(
        [sys.executable, "-m", "worker", *arguments],
        env=environment(scene.settings),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def written(folder: Path, *lines: Mapping[str, Any]) -> Path:
    path = folder / "requests.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def consumed(scene: Scene, *arguments: str) -> list[dict[str, Any]]:
    """Everything in the response topic, or in another."""
    return run(scene, "consume", "--from-beginning", "--no-follow", "--json", *arguments).documents


def test_made_up_requests_are_right_in_every_encoding(kafka: Cluster, tmp_path: Path) -> None:
    """`consume` reads equal answers from all encodings."""
    with Scene(kafka, tmp_path) as scene:
        scene.replica()

        for encoding in ENCODINGS:
            done = run(scene, "publish", "--random", "20", "--encoding", encoding, "--key", "{n}", "--wait", "--json")
            (told,) = done.documents
            assert (told["published"], told["refused"], told["unknown"]) == (20, 0, 0), done
            assert told["answers"] == {"ok": 20, "errors": {}, "missing": 0, "repeated": 0, "passed_over": 0}
            assert 0 < told["latency_ms"]["p50"] <= told["latency_ms"]["p99"] <= told["latency_ms"]["max"]
        answers = consumed(scene)

    by_key: dict[str, list[Any]] = {}
    for answer in answers:
        by_key.setdefault(answer["key"], []).append(answer["outputs"])
    assert len(by_key) == 20
    for outputs in by_key.values():
        assert len(outputs) == len(ENCODINGS)
        for (tensor,) in outputs:
            assert (tensor["name"], tensor["datatype"], tensor["shape"]) == ("y", "FP32", [1, 4])
            np.testing.assert_allclose(tensor["data"], outputs[0][0]["data"], rtol=1e-5)


def test_bad_input_is_published_and_its_errors_are_counted(kafka: Cluster, tmp_path: Path) -> None:
    """Errors are counted by code, next to the good answers; they are a failure with a hint: exit code 7.

    A request's own id and key come back in its answer.
    """
    tensor = {"name": "x", "shape": [1, WIDTH], "datatype": "FP32", "data": [0.5] * WIDTH}
    path = written(
        tmp_path,
        {"inputs": [tensor], "id": "good"},
        {"inputs": [tensor], "model_name": "other"},
        {"value": "{ broken", "key": "b", "headers": {"request-id": "broken"}},
        {"value": None, "headers": {"request-id": "null"}},
    )
    with Scene(kafka, tmp_path) as scene:
        scene.replica()

        done = run(scene, "publish", path, "--wait", "--json")
        (summary,) = done.documents
        errors = consumed(scene, "--errors-only")
        named = consumed(scene, "--request-id", "good")
        letters = run(scene, "consume", "--topic", scene.dead_letter_topic, "--last", "9", "--no-follow").output

    assert summary["answers"]["errors"] == {"INVALID_ARGUMENT": 2, "NOT_FOUND": 1}
    assert (summary["answers"]["ok"], summary["answers"]["missing"]) == (1, 0)
    assert done.code == 7
    assert "3 of 4 requests got an error; `inference-worker consume --errors-only --last 3`" in done.errors
    assert {"broken", "null"} <= {error["headers"].get("request-id") for error in errors}
    assert [answer["id"] for answer in named] == ["good"]
    assert letters.count("dead letter") == 3
    assert "{ broken" in letters


def test_a_record_too_large_for_the_topic_is_refused_alone(kafka: Cluster, tmp_path: Path) -> None:
    """The error names the cure; its neighbours are published, though Kafka would refuse their common batch."""
    with Scene(kafka, tmp_path) as scene:
        small = kafka.create_topic("small", config={"max.message.bytes": "20000"})
        sizes = [50_000 if n == 50 else 1_000 for n in range(100)]
        path = written(tmp_path, *({"value": "x" * size} for size in sizes))

        done = run(scene, "publish", path, "--topic", small)

        assert done.code == 7
        assert "published  99 requests" in done.output
        assert "refused    1" in done.output
        assert f"1 request refused: larger than {small} takes; raise its max.message.bytes" in done.errors
        assert len(kafka.read_all(small)) == 99


def test_an_interrupted_publication_says_how_far_it_came(kafka: Cluster, tmp_path: Path) -> None:
    """The count is that of the topic's records, all acknowledged: exit code 7."""
    with Scene(kafka, tmp_path) as scene:
        publishing = started(scene, "publish", "--random", "1000000", "--rate", "500", "--json")
        deadline = time.monotonic() + TIMEOUT
        while sum(kafka.end_offsets(scene.topic).values()) < 50:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        publishing.send_signal(signal.SIGINT)
        output, errors = publishing.communicate(timeout=TIMEOUT)

        summary = json.loads(output)
        assert publishing.returncode == 7
        assert summary["published"] == sum(kafka.end_offsets(scene.topic).values())
        assert f"stopped after {summary['published']:,} requests".encode() in errors


def test_the_last_ones_are_records_and_no_markers_of_transactions(kafka: Cluster, tmp_path: Path) -> None:
    """Every third of twelve transactions, with an answer each, is aborted: not every offset is a record."""
    with Scene(kafka, tmp_path, partitions=1) as scene:
        producer = Producer({**kafka.login, "transactional.id": fresh("writer")})
        producer.init_transactions(TIMEOUT)
        for number in range(12):
            producer.begin_transaction()
            producer.produce(scene.response_topic, b"", b"%d" % number)
            if number % 3 == 2:
                producer.flush(TIMEOUT)
                producer.abort_transaction(TIMEOUT)
            else:
                producer.commit_transaction(TIMEOUT)

        shown = ("consume", "--json", "--no-follow", "--last")
        found = {count: run(scene, *shown, str(count)).documents for count in (1, 5, 50)}

    kept = [str(number) for number in range(12) if number % 3 != 2]
    assert {count: [answer["key"] for answer in answers] for count, answers in found.items()} == {
        1: kept[-1:],
        5: kept[-5:],
        50: kept,
    }


def test_a_reader_who_has_enough_ends_it(kafka: Cluster, tmp_path: Path) -> None:
    """`consume | head -1` is no failure, and leaves no traceback."""
    with Scene(kafka, tmp_path) as scene:
        kafka.produce(scene.response_topic, [Sent(b"k", b"x" * 1000, [RAW_HEADER]) for _ in range(500)])
        consuming = started(scene, "consume", "--from-beginning", "--follow", "--json")
        assert consuming.stdout is not None
        assert json.loads(consuming.stdout.readline())["key"] == "k"
        consuming.stdout.close()
        kafka.produce(scene.response_topic, [Sent(b"k", b"x" * 1000, [RAW_HEADER]) for _ in range(500)])
        assert consuming.stderr is not None

        assert consuming.wait(TIMEOUT) == 0
        assert consuming.stderr.read() == b""
        consuming.stderr.close()
        assert consuming.stdin is not None
        consuming.stdin.close()
