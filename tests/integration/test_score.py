"""`inference-worker score` answers as the worker does; its output is whole, or it says how far it came."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Consumer, Producer

from tests.kafka.replica import PASSED_ON, Replica, cpu_seconds
from tests.models import (
    lookup,
    mlp,
    save,
    spinner,
    square_root,
)
from worker.tools.kafka.embedded import EmbeddedBroker

TIMEOUT = 40.0


def request(rows: Sequence[int], *, name: str = "id", datatype: str = "INT64", **members: Any) -> dict[str, Any]:
    """A request to `lookup`."""
    return {"inputs": [{"name": name, "shape": [len(rows), 1], "datatype": datatype, "data": list(rows)}], **members}


LINES = [
    json.dumps(line) if not isinstance(line, str) else line
    for line in [
        request([3], id="first"),
        request([1, 2], outputs=[{"name": "y"}]),
        request([99], id="fails"),  # the model fails on it
        request(list(range(9)) * 2, id="larger than a batch"),
        request([5]),
        request([4], name="nobody", id="a7"),
        request([4], datatype="FP32"),
        request([4], model_name="another"),
        request([4], parameters={"binary_data_output": True}),
        request([0, 77, 1], id="one row fails"),
        "",
        "nonsense",
        '{"id": "' + "x" * 3000 + '"}',  # an id too long
        '{"inputs": "' + "x" * 5000 + '"}',  # a request too long
        request([9], id="last"),
    ]
]


def command(*arguments: str | Path, settings: dict[str, str] | None = None) -> tuple[list[str], dict[str, str]]:
    kept = {key: os.environ[key] for key in PASSED_ON if key in os.environ}
    environment = {**kept, "WORKER_MODEL__DEVICE": "cpu", **(settings or {})}
    return [sys.executable, "-m", "worker", "score", *map(str, arguments)], environment


def started(*arguments: str | Path, settings: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    words, environment = command(*arguments, settings=settings)
    pipe = subprocess.PIPE
    return subprocess.Popen(words, env=environment, stdin=pipe, stdout=pipe, stderr=pipe)


def saved(folder: Path, array: np.ndarray[Any, Any], name: str = "rows.npy") -> Path:
    np.save(folder / name, array)
    return folder / name


def test_a_line_s_answer_is_the_worker_s(tmp_path: Path) -> None:
    """The bytes are equal, except that an error has its code and line, which the worker puts into headers."""
    model = save(lookup(), tmp_path)
    (tmp_path / "lines.jsonl").write_text("\n".join(LINES) + "\n")
    limits = {"KAFKA__MAX_REQUEST_BYTES": "4000", "MODEL__DEVICE": "cpu", "BATCHING__MAX_BATCH_SIZE": "4"}

    by_worker = worker_s_answers(model, limits, tmp_path)
    process = started(
        model, tmp_path / "lines.jsonl", settings={f"WORKER_{name}": value for name, value in limits.items()}
    )
    out, told = process.communicate(timeout=TIMEOUT)

    assert out.splitlines() == [
        body if code is None else b'%b,"code":"%b","line":%d}' % (body[:-1], code, number)
        for number, (body, code) in enumerate(by_worker, 1)
    ]
    assert process.returncode == 7
    assert (
        b"inference-worker: 10 of 15 lines refused: 8 INVALID_ARGUMENT (first: line 3), "
        b"1 NOT_FOUND (first: line 8), 1 RESOURCE_EXHAUSTED (first: line 14)" in told
    )


def worker_s_answers(model: Path, settings: dict[str, str], folder: Path) -> list[tuple[bytes, bytes | None]]:
    """The value and the error code of a real worker's answer to each line."""
    with EmbeddedBroker() as broker:
        topics = {"KAFKA__REQUEST_TOPICS": "requests", "KAFKA__RESPONSE_TOPIC": "answers", "KAFKA__GROUP_ID": "g"}
        for topic in ("requests", "answers"):
            broker.create_topic(topic)
        own = {"KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap_servers, "MODEL__PATH": str(model)}
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        headers: dict[str, str | bytes | None] = dict.fromkeys(("content-type", "accept"), "application/json")
        for line in LINES:
            producer.produce("requests", line, partition=0, headers=headers)
        producer.flush()
        with Replica({**topics, **own, **settings}, folder) as replica:
            replica.wait_until_ready()
            return read_answers(broker.bootstrap_servers, len(LINES))


def read_answers(servers: str, count: int) -> list[tuple[bytes, bytes | None]]:
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "r", "auto.offset.reset": "earliest", "fetch.wait.max.ms": 10}
    )
    consumer.subscribe(["answers"])
    answers: dict[int, tuple[bytes, bytes | None]] = {}
    deadline = time.monotonic() + TIMEOUT
    while len(answers) < count:
        assert time.monotonic() < deadline, f"{len(answers)} of {count} answers"
        for message in consumer.consume(100, 0.1):
            headers: dict[str, bytes] = dict(message.headers() or [])  # type: ignore[arg-type]  # the stubs know only lists of both
            at = int(headers["source"].rpartition(b"/")[2])
            answers[at] = (message.value() or b"", headers.get("error-code"))
    consumer.close()
    return [answers[at] for at in range(count)]


def test_a_pipe_is_answered_while_it_is_open(tmp_path: Path) -> None:
    """A user who types a line reads its answer at once."""
    process = started(save(lookup(), tmp_path), "-")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(LINES[0].encode() + b"\n")
    process.stdin.flush()

    answer = json.loads(process.stdout.readline())
    _, told = process.communicate(timeout=TIMEOUT)

    assert (answer["id"], answer["outputs"][0]["data"]) == ("first", [6, 7])
    assert process.returncode == 0, told


def test_a_disk_that_is_full_leaves_a_part_that_says_how_far_it_is(tmp_path: Path) -> None:
    """The error is one sentence, and the partial array loads."""
    file = saved(tmp_path, np.ones((20_000, 1), "<f4"))
    words, environment = command(save(square_root(1), tmp_path), file, "-o", tmp_path / "out.npy", "--batch-size", "64")
    limited = ["sh", "-c", 'ulimit -f 32; exec "$@"', "sh", *words]  # blocks of 512 bytes: 4,064 rows
    done = subprocess.run(limited, env=environment, capture_output=True, timeout=TIMEOUT, check=False)

    assert done.returncode == 7, done.stderr
    assert b"out.partial.npy: cannot be written: File too large" in done.stderr
    assert not (tmp_path / "out.npy").exists()
    kept = np.load(tmp_path / "out.partial.npy")
    assert f"has the first {len(kept):,} results".encode() in done.stderr
    assert len(kept) < 4064
    assert (kept == 1).all()


def interrupted(tmp_path: Path, turns: Sequence[int]) -> subprocess.Popen[bytes]:
    """A run over rows of these turns each, which gets a SIGINT once its model has worked for a while."""
    file = saved(tmp_path, np.array(turns, "<i8").reshape(-1, 1))
    process = started(save(spinner(), tmp_path), file, "-o", tmp_path / "out.npy", "--batch-size", "4")
    deadline = time.monotonic() + TIMEOUT
    partial = tmp_path / "out.partial.npy"
    while not (partial.exists() and partial.stat().st_size):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    spent = cpu_seconds(process.pid)  # so far: the head of the file is written before any row is read
    while cpu_seconds(process.pid) < spent + 1.0:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    return process


def test_a_stop_leaves_the_first_rows_and_says_how_many(tmp_path: Path) -> None:
    """The current batch is finished."""
    process = interrupted(tmp_path, [5_000] * 10_000)  # 20 ms for a batch of four
    _, told = process.communicate(timeout=TIMEOUT)

    assert process.returncode == 7
    kept = np.load(tmp_path / "out.partial.npy")
    assert 0 < len(kept) < 10_000
    assert f"out.partial.npy has the first {len(kept):,} results" in told.decode()
    assert f"inference-worker: stopped after {len(kept):,} rows of 10,000" in told.decode()


def test_a_second_signal_does_not_wait_for_an_inference_that_hangs(tmp_path: Path) -> None:
    """The process ends at once, and no file has the name of a whole output."""
    process = interrupted(tmp_path, [1] * 4 + [10**12] * 400)
    deadline = time.monotonic() + TIMEOUT
    while process.poll() is None:  # a signal that comes before the first is handled is lost
        assert time.monotonic() < deadline
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
    process.communicate(timeout=TIMEOUT)

    assert process.returncode == -signal.SIGINT
    assert sorted(path.name for path in tmp_path.glob("out*")) == ["out.errors.partial.jsonl", "out.partial.npy"]


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """512 MiB of rows take less than 300 MiB."""
    rows = 512 * 1024
    array = np.lib.format.open_memmap(tmp_path / "rows.npy", "w+", np.float32, (rows, 256))  # sparse: zeros
    del array
    process = started(save(mlp(256, (16,), 4), tmp_path), tmp_path / "rows.npy", "-o", tmp_path / "out.npy")
    peak = 0
    while process.poll() is None:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        peak = max([peak, *(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))])
        time.sleep(0.05)
    _, told = process.communicate(timeout=TIMEOUT)

    assert process.returncode == 0, told
    assert np.load(tmp_path / "out.npy", mmap_mode="r").shape == (rows, 4)
    assert peak < 300 * 1024, f"{peak / 1024:.0f} MiB"
