"""`inference-worker score`: as the worker would answer, and whole or told."""

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
import onnxruntime
import pytest
from confluent_kafka import Consumer, Producer

from tests.kafka.replica import PASSED_ON, Replica, cpu_seconds
from tests.models import for_rows, identities, lookup, mlp, save, spinner, square_root, two_in_two_out
from worker.core.failures import BadConfiguration, Incomplete
from worker.tools.kafka.embedded import EmbeddedBroker
from worker.tools.score.command import score
from worker.tools.score.files.claims import claimed
from worker.tools.score.options import ScoreOrder

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


def scored(model: Path, file: Path, output: Path | None, batch_size: int = 4, **asked: Any) -> int:
    """In this process."""
    return score(ScoreOrder(model=model, file=file, output=output, batch_size=batch_size, **asked))


def saved(folder: Path, array: np.ndarray[Any, Any], name: str = "rows.npy") -> Path:
    np.save(folder / name, array)
    return folder / name


def test_a_line_s_answer_is_the_worker_s(tmp_path: Path) -> None:
    """The same bytes, but that an error says its code and line, which the worker says in headers."""
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


@pytest.mark.parametrize("batch_size", [1, 3, 64, 1000])
def test_rows_are_what_onnxruntime_computes_in_these_batches(tmp_path: Path, batch_size: int) -> None:
    """To the last bit, because a batch has the rows that it would have in a loop by hand."""
    rows = np.random.default_rng(0).standard_normal((500, 8), dtype=np.float32)
    model = save(mlp(8, (16,), 3), tmp_path)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])

    assert scored(model, saved(tmp_path, rows), tmp_path / "out.npy", batch_size) == 0

    parts = [session.run(None, {"x": rows[at : at + batch_size]})[0] for at in range(0, 500, batch_size)]
    assert np.array_equal(np.load(tmp_path / "out.npy"), np.concatenate(parts))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "out.npy", "rows.npy"]


@pytest.mark.parametrize("most_tokens", ["", "64"])
def test_bad_rows_are_refused_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, most_tokens: str
) -> None:
    """NaN in the results, their reasons beside them, and an exit code that says so; also where a batch has few rows."""
    monkeypatch.setenv("WORKER_BATCHING__MAX_BATCH_TOKENS", most_tokens)
    rows = np.arange(400, dtype="<f4").reshape(100, 4)
    rows[17, 2], rows[60, 0] = np.nan, -1  # refused before the model, and by what it answers
    model = save(square_root(), tmp_path)

    with pytest.raises(Incomplete) as told:
        scored(model, saved(tmp_path, rows), tmp_path / "out.npy")

    results = np.load(tmp_path / "out.npy")
    good = [row for row in range(100) if row not in (17, 60)]
    assert np.array_equal(results[good], np.sqrt(rows[good]))
    assert np.isnan(results[[17, 60]]).all()
    assert [json.loads(line) for line in (tmp_path / "out.errors.jsonl").read_text().splitlines()] == [
        {"error": "input x: holds NaN or infinity", "code": "INVALID_ARGUMENT", "row": 17},
        {"error": "output y: the model answered NaN or infinity", "code": "INTERNAL", "row": 60},
    ]
    assert str(told.value) == ("2 of 100 rows refused: 1 INVALID_ARGUMENT (first: row 17), 1 INTERNAL (first: row 60)")
    assert "out.npy" in capfd.readouterr().err


def test_rows_on_which_the_model_fails_are_refused_alone(tmp_path: Path) -> None:
    """Many in a row do not stop it: the warm-up batch proves that the device works."""
    rows = np.arange(60, dtype="<i8").reshape(60, 1)
    model = save(lookup(rows=10, width=2), tmp_path)

    with pytest.raises(Incomplete, match=r"50 of 60 rows refused: 50 INVALID_ARGUMENT \(first: row 10\)"):
        scored(model, saved(tmp_path, rows), tmp_path / "out.npy", 8)

    results = np.load(tmp_path / "out.npy")
    assert results.shape == (60, 1, 2)
    assert np.array_equal(results[:10].reshape(-1), np.arange(20))
    assert np.isnan(results[10:]).all()


def test_several_inputs_and_outputs_have_an_array_each(tmp_path: Path) -> None:
    """A .npz in, a .npy per output out."""
    a, b = np.ones((9, 3), "<f4"), np.arange(18, dtype="<i8").reshape(9, 2)
    np.savez(tmp_path / "rows.npz", b=b, a=a)

    assert scored(save(two_in_two_out(), tmp_path), tmp_path / "rows.npz", tmp_path / "out.npy") == 0

    assert np.array_equal(np.load(tmp_path / "out.total.npy").reshape(-1), 3 + b.sum(axis=1))
    assert np.array_equal(np.load(tmp_path / "out.doubled.npy"), 2 * b)


def test_inputs_left_out_and_fixed_batches_are_scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the worker serves them: one array for a model of two inputs, in batches of exactly eight rows."""
    monkeypatch.setenv("WORKER_MODEL__FIXED_BATCH", "pad")
    monkeypatch.setenv("WORKER_MODEL__INPUT_DEFAULTS", '{"b": 3}')
    model = save(for_rows(8, two_in_two_out()), tmp_path)
    a = np.arange(99, dtype=np.float32).reshape(33, 3)

    assert scored(model, saved(tmp_path, a), tmp_path / "out.npy", batch_size=32) == 0

    np.testing.assert_allclose(np.load(tmp_path / "out.total.npy")[:, 0], a.sum(axis=1) + 6)
    assert np.load(tmp_path / "out.doubled.npy").tolist() == [[6, 6]] * 33


def test_rows_may_be_answered_as_lines(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Each is a request of its own."""
    rows = np.array([[4, 9], [np.nan, 1], [16, 25]], "<f4")

    with pytest.raises(Incomplete, match="1 of 3 rows refused"):
        scored(save(square_root(2), tmp_path), saved(tmp_path, rows), None)

    answers = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [answer["outputs"][0]["data"] for answer in (answers[0], answers[2])] == [[2, 3], [4, 5]]
    assert answers[0]["outputs"][0]["shape"] == [1, 2]
    assert answers[1] == {"error": "input x: holds NaN or infinity", "code": "INVALID_ARGUMENT", "row": 1}


def test_text_goes_in_and_out_as_lines(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """An array of it goes in, but never out: numpy would pickle it."""
    model = save(identities({"": "BYTES"}, (2,)), tmp_path)
    file = saved(tmp_path, np.array([["a", "öl"], ["", "c"]]))

    assert scored(model, file, None) == 0

    answers = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [answer["outputs"][0]["data"] for answer in answers] == [["a", "öl"], ["", "c"]]
    with pytest.raises(BadConfiguration, match="output y is text"):
        scored(model, file, tmp_path / "out.npy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "rows.npy"]


def test_half_precision_has_no_form_in_json(tmp_path: Path) -> None:
    """Told once, not once for each row; as an array it goes."""
    model = save(identities({"": "FP16"}), tmp_path)
    file = saved(tmp_path, np.ones((3, 2), "<f2"))

    with pytest.raises(BadConfiguration, match=r"output y is FP16, which has no form in JSON: give --output FILE.npy"):
        scored(model, file, None)
    assert scored(model, file, tmp_path / "out.npy") == 0


def test_names_that_are_no_utf8_stop_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A file system takes any bytes. The model is called by what can be read of its file's name."""
    model = save(lookup(), tmp_path).rename(tmp_path / "m\udcff.onnx")
    (tmp_path / "l\udcff.jsonl").write_text(json.dumps(request([3])) + "\n")

    assert scored(model, tmp_path / "l\udcff.jsonl", None) == 0

    assert json.loads(capfd.readouterr().out)["model_name"] == "m\ufffd"


def test_a_limit_ends_it_early(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """That is all that was asked for, so nothing is missing."""
    model = save(square_root(1), tmp_path)
    file = saved(tmp_path, np.ones((50, 1), "<f4"))

    assert scored(model, file, tmp_path / "out.npy", limit=7) == 0
    assert scored(model, file, None, limit=3) == 0

    assert np.load(tmp_path / "out.npy").shape == (7, 1)
    assert len(capfd.readouterr().out.splitlines()) == 3


def test_nothing_is_written_over_unasked(tmp_path: Path) -> None:
    """Neither results nor what a stopped run left; and the input not even with --force."""
    model = save(square_root(1), tmp_path)
    file = saved(tmp_path, np.ones((5, 1), "<f4"))
    lines = tmp_path / "lines.jsonl"
    lines.write_text("")
    (tmp_path / "out.partial.npy").write_text("precious")

    with pytest.raises(BadConfiguration, match=r"out.partial.npy is there already: --force writes over it"):
        scored(model, file, tmp_path / "out.npy")
    with pytest.raises(BadConfiguration, match=r"lines.jsonl is there already"):
        scored(model, file, lines)
    with pytest.raises(BadConfiguration, match=r"rows.npy is the input itself"):
        scored(model, file, file, force=True)
    assert (tmp_path / "out.partial.npy").read_text() == "precious"
    assert scored(model, file, tmp_path / "out.npy", force=True) == 0
    assert np.array_equal(np.load(tmp_path / "out.npy"), np.ones((5, 1)))


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".TSV"])
def test_a_name_promises_no_format_that_is_not_written(suffix: str, tmp_path: Path) -> None:
    """It would hold JSON lines, and programs that read such files would take it for damaged."""
    model = save(square_root(1), tmp_path)
    file = saved(tmp_path, np.ones((5, 1), "<f4"))

    with pytest.raises(BadConfiguration, match=r"as JSON lines: give it the name out\.npy or out\.jsonl"):
        scored(model, file, tmp_path / f"out{suffix}")
    assert not (tmp_path / f"out{suffix}").exists()


@pytest.mark.parametrize("taken", ["out.partial.npy", "out.errors.jsonl"])
def test_two_runs_never_write_one_file(taken: str, tmp_path: Path) -> None:
    """Not even with --force: the second is refused before it touches anything."""
    model = save(square_root(1), tmp_path)
    file = saved(tmp_path, np.ones((5, 1), "<f4"))
    other = claimed(tmp_path / taken)
    os.write(other, b"its own")

    with pytest.raises(BadConfiguration, match=f"{taken}: another run is writing it"):
        scored(model, file, tmp_path / "out.npy")
    (tmp_path / "out.npy").write_text("older")
    with pytest.raises(BadConfiguration, match=f"{taken}: another run is writing it"):
        scored(model, file, tmp_path / "out.npy", force=True)

    assert {path.name: path.read_text() for path in tmp_path.glob("out*")} == {taken: "its own", "out.npy": "older"}
    os.close(other)
    assert scored(model, file, tmp_path / "out.npy", force=True) == 0


def test_a_second_run_does_not_cut_short_the_lines_of_the_first(tmp_path: Path) -> None:
    """Lines go into their file as they come, under its own name."""
    model, output = save(lookup(), tmp_path), tmp_path / "out.jsonl"
    process = started(model, "-", "-o", output)
    assert process.stdin is not None
    process.stdin.write(LINES[0].encode() + b"\n")
    process.stdin.flush()
    deadline = time.monotonic() + TIMEOUT
    while not (output.exists() and output.stat().st_size):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (tmp_path / "lines.jsonl").write_text(LINES[0] + "\n")

    with pytest.raises(BadConfiguration, match=r"out.jsonl: another run is writing it"):
        scored(model, tmp_path / "lines.jsonl", output, force=True)
    _, told = process.communicate(LINES[0].encode() + b"\n", timeout=TIMEOUT)

    assert process.returncode == 0, told
    assert [json.loads(line)["id"] for line in output.read_text().splitlines()] == ["first", "first"]


def test_what_cannot_be_is_told_at_once(tmp_path: Path) -> None:
    """Before the model is loaded."""
    (tmp_path / "lines.jsonl").write_text("")

    with pytest.raises(BadConfiguration, match=r"only rows of a .npy or .npz are answered as .npy"):
        scored(tmp_path / "no.onnx", tmp_path / "lines.jsonl", tmp_path / "out.npy")
    with pytest.raises(BadConfiguration, match="there is no such file"):
        scored(tmp_path / "no.onnx", tmp_path / "absent.npy", tmp_path / "out.npy")
    (tmp_path / "rows.csv").write_text("1,2,3\n")
    with pytest.raises(BadConfiguration, match=r"is CSV, and rows come as .npy: np.save\('rows.npy', np.loadtxt\("):
        scored(tmp_path / "no.onnx", tmp_path / "rows.csv", tmp_path / "out.npy")
    (tmp_path / "other.onnx").write_bytes(b"\x08\x0a\0")
    with pytest.raises(BadConfiguration, match=r"is no text; rows come as .npy or .npz, requests as lines of JSON"):
        scored(tmp_path / "no.onnx", tmp_path / "other.onnx", tmp_path / "out.jsonl")


def test_a_pipe_is_answered_while_it_is_open(tmp_path: Path) -> None:
    """Whoever types a line reads its answer."""
    process = started(save(lookup(), tmp_path), "-")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(LINES[0].encode() + b"\n")
    process.stdin.flush()

    answer = json.loads(process.stdout.readline())
    _, told = process.communicate(timeout=TIMEOUT)

    assert (answer["id"], answer["outputs"][0]["data"]) == ("first", [6, 7])
    assert process.returncode == 0, told


def test_a_reader_that_leaves_is_no_traceback(tmp_path: Path) -> None:
    """As with `| head`."""
    file = saved(tmp_path, np.ones((20_000, 1), "<f4"))
    with started(save(square_root(1), tmp_path), file) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        told = process.stderr.read()

    assert process.returncode == 7
    assert told.strip() == b"inference-worker: standard output: cannot be written to: Broken pipe"


def test_a_disk_that_is_full_leaves_a_part_that_says_how_far_it_is(tmp_path: Path) -> None:
    """One sentence, and an array that loads."""
    file = saved(tmp_path, np.ones((20_000, 1), "<f4"))
    words, environment = command(save(square_root(1), tmp_path), file, "-o", tmp_path / "out.npy", "--batch-size", "64")
    limited = ["sh", "-c", 'ulimit -f 32; exec "$@"', "sh", *words]  # blocks of 512 bytes: 4,064 rows
    done = subprocess.run(limited, env=environment, capture_output=True, timeout=TIMEOUT, check=False)

    assert done.returncode == 7, done.stderr
    assert b"out.partial.npy: cannot be written at byte 16,384: File too large" in done.stderr
    assert not (tmp_path / "out.npy").exists()
    kept = np.load(tmp_path / "out.partial.npy")
    assert f"has the results of the first {len(kept):,} rows".encode() in done.stderr
    assert len(kept) < 4064
    assert (kept == 1).all()


def interrupted(tmp_path: Path, turns: Sequence[int]) -> subprocess.Popen[bytes]:
    """A run over rows that take so many turns each, told to stop once its model has been at work for a while."""
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
    """What is under way is finished."""
    process = interrupted(tmp_path, [5_000] * 10_000)  # 20 ms for a batch of four
    _, told = process.communicate(timeout=TIMEOUT)

    assert process.returncode == 7
    kept = np.load(tmp_path / "out.partial.npy")
    assert 0 < len(kept) < 10_000
    assert f"out.partial.npy has the results of the first {len(kept):,} rows" in told.decode()
    assert f"inference-worker: stopped after {len(kept):,} rows of 10,000" in told.decode()


def test_a_second_signal_does_not_wait_for_an_inference_that_hangs(tmp_path: Path) -> None:
    """It ends at once, and is no crash."""
    process = interrupted(tmp_path, [1] * 4 + [10**12] * 400)
    deadline = time.monotonic() + TIMEOUT
    while process.poll() is None:  # two signals that come before the first is taken are one
        assert time.monotonic() < deadline
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=TIMEOUT)

    assert process.returncode == 7, told
    assert "stopped at once: what was under way has no answers" in told.decode()
    assert len(np.load(tmp_path / "out.partial.npy")) == 4


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """512 MiB of rows in less than 300 MiB."""
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
