"""`inference-worker score` in this process: results, refusals, and files that are complete or named as parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from tests.models import (
    for_rows,
    identities,
    lookup,
    mlp,
    save,
    sequence_mean,
    softmax_of_columns,
    square_root,
    two_in_two_out,
)
from worker.core.failures import BadConfiguration, Incomplete, ModelBroken, RunFailure
from worker.inference.model import Model
from worker.tools.options import ScoreOrder
from worker.tools.score.command import score


@pytest.fixture(autouse=True)
def _on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_MODEL__DEVICE", "cpu")


def scored(model: Path, file: Path, output: Path | None, batch_size: int = 4, **asked: Any) -> int:
    return score(ScoreOrder(model=model, file=file, output=output, batch_size=batch_size, **asked))


def saved(folder: Path, array: np.ndarray[Any, Any], name: str = "rows.npy") -> Path:
    np.save(folder / name, array)
    return folder / name


def written(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("batch_size", [1, 3, 64, 1000])
def test_rows_are_what_onnxruntime_computes_in_these_batches(tmp_path: Path, batch_size: int) -> None:
    """They agree to the last bit, because a batch has the rows of a hand-written loop."""
    rows = np.random.default_rng(0).standard_normal((500, 8), dtype=np.float32)
    model = save(mlp(8, (16,), 3), tmp_path)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])

    assert scored(model, saved(tmp_path, rows), tmp_path / "out.npy", batch_size) == 0

    parts = [session.run(None, {"x": rows[at : at + batch_size]})[0] for at in range(0, 500, batch_size)]
    assert np.array_equal(np.load(tmp_path / "out.npy"), np.concatenate(parts))
    assert written(tmp_path) == ["model.onnx", "out.npy", "rows.npy"]


@pytest.mark.parametrize("most_tokens", ["", "64"])
def test_bad_rows_are_refused_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, most_tokens: str
) -> None:
    """Results have NaN for them, an errors file has the reasons, and the exit code tells, also with small batches."""
    monkeypatch.setenv("WORKER_BATCHING__MAX_BATCH_TOKENS", most_tokens)
    rows = np.arange(400, dtype="<f4").reshape(100, 4)
    rows[17, 2], rows[60, 0] = np.nan, -1  # refused before the model, and by its answer
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
    """Many in a row do not stop the run: the warm-up batch proves that the device works."""
    rows = np.arange(60, dtype="<i8").reshape(60, 1)
    model = save(lookup(rows=10, width=2), tmp_path)

    with pytest.raises(Incomplete, match=r"50 of 60 rows refused: 50 INVALID_ARGUMENT \(first: row 10\)"):
        scored(model, saved(tmp_path, rows), tmp_path / "out.npy", 8)

    results = np.load(tmp_path / "out.npy")
    assert results.shape == (60, 1, 2)
    assert np.array_equal(results[:10].reshape(-1), np.arange(20))
    assert np.isnan(results[10:]).all()


def test_a_broken_device_stops_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No row is to blame then; earlier rows have their results in a partial file."""
    rows = np.arange(60, dtype="<i8").reshape(60, 1)
    monkeypatch.setattr(Model, "probe", lambda _: RunFailure("the device is gone"))

    with pytest.raises(ModelBroken, match="warm-up batch, which ran at start: the device is gone"):
        scored(save(lookup(rows=30, width=2), tmp_path), saved(tmp_path, rows), tmp_path / "out.npy", 4)

    kept = np.load(tmp_path / "out.partial.npy")
    assert 0 < len(kept) < 30
    assert not (tmp_path / "out.npy").exists()


def test_a_model_that_loses_rows_stops_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier results may belong to other rows."""
    run = Model.run

    def losing(self: Model, feeds: Any) -> Any:
        outputs = run(self, feeds)
        return [output[1:] for output in outputs] if not isinstance(outputs, RunFailure) else outputs

    monkeypatch.setattr(Model, "run", losing)

    with pytest.raises(ModelBroken, match="score the file again with --batch-size 1"):
        scored(save(mlp(4), tmp_path), saved(tmp_path, np.ones((9, 4), "<f4")), tmp_path / "out.npy")


@pytest.mark.parametrize(("batch_size", "is_told"), [(64, True), (1, False)])
def test_rows_that_change_one_another_are_warned_of(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], batch_size: int, *, is_told: bool
) -> None:
    """A worker refuses such a model; scoring shows what batches do to its rows."""
    model = save(softmax_of_columns(), tmp_path)

    assert scored(model, saved(tmp_path, np.zeros((10, 4), "<f4")), tmp_path / "out.npy", batch_size) == 0

    assert ("warning: rows that share a batch change one another's answers" in capfd.readouterr().err) is is_told


def test_inputs_left_out_and_fixed_batches_are_scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker serves them so: one array for a model of two inputs, in batches of exactly eight rows."""
    monkeypatch.setenv("WORKER_MODEL__FIXED_BATCH", "pad")
    monkeypatch.setenv("WORKER_MODEL__INPUT_DEFAULTS", '{"b": 3}')
    model = save(for_rows(8, two_in_two_out()), tmp_path)
    a = np.arange(99, dtype=np.float32).reshape(33, 3)

    assert scored(model, saved(tmp_path, a), tmp_path / "out.npy", batch_size=32) == 0

    np.testing.assert_allclose(np.load(tmp_path / "out.total.npy")[:, 0], a.sum(axis=1) + 6)
    assert np.load(tmp_path / "out.doubled.npy").tolist() == [[6, 6]] * 33


def test_rows_may_be_answered_as_lines(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Each row is a request."""
    rows = np.array([[4, 9], [np.nan, 1], [16, 25]], "<f4")

    with pytest.raises(Incomplete, match="1 of 3 rows refused"):
        scored(save(square_root(2), tmp_path), saved(tmp_path, rows), None)

    answers = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [answer["outputs"][0]["data"] for answer in (answers[0], answers[2])] == [[2, 3], [4, 5]]
    assert answers[1] == {"error": "input x: holds NaN or infinity", "code": "INVALID_ARGUMENT", "row": 1}


@pytest.mark.parametrize("bad", [0, 3, 6])
def test_lines_are_answered_in_their_order(tmp_path: Path, capfd: pytest.CaptureFixture[str], bad: int) -> None:
    """Neighbours of other shapes run in other batches, and the first, a middle or the last line may be wrong."""
    lengths = [1, 2, 1, 3, 2, 2, 1]
    inputs = [
        {"name": "tokens", "shape": [1, of], "datatype": "FP32", "data": [float(at)] * of}
        for at, of in enumerate(lengths)
    ]
    inputs[bad]["data"] = []
    file = tmp_path / "lines.jsonl"
    file.write_text("".join(json.dumps({"id": str(at), "inputs": [one]}) + "\n" for at, one in enumerate(inputs)))

    with pytest.raises(Incomplete, match=rf"1 of 7 lines refused: 1 INVALID_ARGUMENT \(first: line {bad + 1}\)"):
        scored(save(sequence_mean(), tmp_path), file, None)

    answers = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [answer["id"] for answer in answers] == [str(at) for at in range(7)]
    assert answers[bad]["line"] == bad + 1
    means = [answer["outputs"][0]["data"] for answer in answers if "outputs" in answer]
    assert means == [[at] for at in range(7) if at != bad]


def test_half_precision_leaves_as_arrays_and_what_has_no_one_shape_as_lines(tmp_path: Path) -> None:
    """JSON has no half precision; .npy has no text, and no rows of different shapes."""
    half, text = save(identities({"": "FP16"}), tmp_path, "half"), save(identities({"": "BYTES"}), tmp_path, "text")
    numbers = saved(tmp_path, np.ones((3, 2), "<f2"))

    assert scored(half, numbers, tmp_path / "out.npy") == 0

    with pytest.raises(Incomplete, match="3 of 3 rows refused"):
        scored(half, numbers, None)
    with pytest.raises(BadConfiguration, match="text comes in lines of JSON"):
        scored(text, saved(tmp_path, np.array([["a"]]), "words.npy"), None)


def test_nothing_is_written_over_unasked(tmp_path: Path) -> None:
    """This protects results, and a stopped run's partial file. The input is protected even with --force."""
    model = save(square_root(1), tmp_path)
    file = saved(tmp_path, np.ones((5, 1), "<f4"))
    (tmp_path / "out.partial.npy").write_text("precious")

    with pytest.raises(BadConfiguration, match=r"out.partial.npy is there already: --force writes over it"):
        scored(model, file, tmp_path / "out.npy")
    with pytest.raises(BadConfiguration, match=r"rows.npy is the input itself"):
        scored(model, file, file, force=True)
    with pytest.raises(BadConfiguration, match="null is no file: leave --output out"):
        scored(model, file, Path("/dev/null"))
    assert (tmp_path / "out.partial.npy").read_text() == "precious"
    assert scored(model, file, tmp_path / "out.npy", force=True) == 0
    assert np.array_equal(np.load(tmp_path / "out.npy"), np.ones((5, 1)))


def test_orders_that_no_model_could_carry_out_are_refused_at_once(tmp_path: Path) -> None:
    """Each is refused before the model is loaded, with what to do instead."""
    (tmp_path / "lines.jsonl").write_text("")

    for file, output, words in (
        ("lines.jsonl", "out.npy", r"only rows of a .npy or .npz are answered as .npy"),
        ("absent.npy", "out.npy", "there is no such file"),
    ):
        with pytest.raises(BadConfiguration, match=words):
            scored(tmp_path / "no.onnx", tmp_path / file, tmp_path / output)
