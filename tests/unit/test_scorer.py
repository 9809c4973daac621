"""A scorer answers records as a worker would: by the mapping, each by itself, and of a new key where there is state."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.models import model, running_mean, save
from tests.unit.test_settings import LEAST
from worker.core.failures import BadConfiguration, Code, RowFault, RunFailure, failure_of_rows
from worker.core.records import Answer, Array, Partition, Record, Rejection
from worker.inference.model_loading import load_as_set
from worker.scorer import Scorer
from worker.settings import load

DOUBLE = model("float[batch, 1] x => float[batch, 1] y", "y = Add(x, x)")
FUNCTIONS = """
def inputs(record):
    if record["x"] < 0:
        raise ValueError("x must not be negative")
    return {"x": [record["x"]]}
"""


def scorer(folder: Path, of: bytes, **settings: str) -> Scorer:
    given = {f"WORKER_{name}": value for name, value in settings.items()}
    path = str(save(of, folder))
    read = load(None, LEAST | {"WORKER_MODEL__PATH": path, "WORKER_MODEL__DEVICE": "cpu", **given})
    return Scorer(load_as_set(read.model, read.batching), read)


def record(at: int, value: object, partition: int = 0) -> Record:
    return Record(Partition("t", partition), at, b"k", json.dumps(value).encode(), (), None)


def said(answer: Answer) -> Any:
    return answer.message if isinstance(answer, Rejection) else json.loads(answer[2] or b"")


def test_rows_that_fail_alone_are_refused_and_the_others_answered(tmp_path: Path) -> None:
    """They share a batch; a batch that has no other rows is refused whole."""
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    of = scorer(tmp_path, DOUBLE, RECORDS__FUNCTIONS=str(tmp_path / "functions.py"), BATCHING__MAX_BATCH_SIZE="2")

    answers = [said(answer) for answer in of.records([record(at, {"x": x}) for at, x in enumerate([1, 2, 3, -1, -2])])]

    assert answers[:3] == [{"y": 2.0}, {"y": 4.0}, {"y": 6.0}]
    assert all("x must not be negative" in answer for answer in answers[3:])
    assert "x must not be negative" in said(of.records([record(0, {"x": -3})])[0])


def test_records_of_several_partitions_keep_their_answers(tmp_path: Path) -> None:
    """Their offsets may be equal."""
    of = scorer(tmp_path, DOUBLE, RECORDS__ENCODING="json")

    answers = of.records([record(7, {"x": 1}, 0), record(7, {"x": 2}, 1)])

    assert list(map(said, answers)) == [{"y": 2.0}, {"y": 4.0}]


def test_a_record_that_could_not_be_read_has_its_reason(tmp_path: Path) -> None:
    """The reader, or the registry, has said it."""
    of = scorer(tmp_path, DOUBLE, RECORDS__ENCODING="json")

    answers = of.records([record(0, {})._replace(value=None, unreadable="no schema"), record(1, {"x": 1})])

    assert list(map(said, answers)) == ["no schema", {"y": 2.0}]


def test_each_record_is_of_a_new_key(tmp_path: Path) -> None:
    """A file has no states; the mean over the key's records is the record's own."""
    states = '{"sum_in": "sum_out", "count_in": "count_out"}'
    of = scorer(tmp_path, running_mean(), RECORDS__ENCODING="json", STATE__TENSORS=states)

    assert [said(answer) for answer in of.records([record(at, {"x": at}) for at in range(3)])] == [
        {"mean": float(at)} for at in range(3)
    ]


def test_a_mapping_that_the_model_refuses_is_told_with_the_models_name(tmp_path: Path) -> None:
    """It is the refusal of a worker's start."""
    with pytest.raises(BadConfiguration, match=r"model\.onnx: \[records\.answer\] score"):
        scorer(tmp_path, DOUBLE, RECORDS__ANSWER='{"score": "z"}')


class Partial:
    """A model of x that gives 2 x, and runs at most two rows at once: others are left. A negative row has a fault.

    Notes the rows of each run. A fault without the others' results: where a row is below -9.
    """

    def __init__(self) -> None:
        self.ran: list[list[float]] = []

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array] | RunFailure:
        values = feeds["x"][:, 0].tolist()
        self.ran.append(values)
        faults = {at: RowFault(Code.INVALID_ARGUMENT, "negative") for at, x in enumerate(values) if x < 0}
        well = [at for at in range(len(values)) if at not in faults]
        outputs = [2 * feeds["x"][well[:2], 0]]
        if min(values) < -9 or not well:
            return failure_of_rows(faults, well[2:])
        return failure_of_rows(faults, well[2:], outputs) if faults or well[2:] else outputs


@pytest.mark.parametrize(
    ("values", "ran"),
    [
        ([1, -1, 2], [[1, -1, 2]]),
        ([1, 2, 3, 4, 5], [[1, 2, 3, 4], [5], [3, 4]]),
        ([1, 2, 3, -1, 4, -2, 5, 6], [[1, 2, 3, -1], [4, -2, 5, 6], [3, 6]]),
        ([-1, -2], [[-1, -2]]),
        ([1, -10, 2, 3, 4], [[1, -10, 2, 3], [4], [1, 2, 3], [3]]),
    ],
)
def test_rows_with_a_result_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: list[int], ran: list[list[int]]
) -> None:
    """A fault of their neighbour costs them nothing; rows that were left run once more."""
    of, partial = scorer(tmp_path, DOUBLE, RECORDS__ENCODING="json", BATCHING__MAX_BATCH_SIZE="4"), Partial()
    monkeypatch.setattr(of._model, "run", partial.run)

    answers = [said(answer) for answer in of.records([record(at, {"x": x}) for at, x in enumerate(values)])]

    assert answers == [{"y": 2.0 * x} if x > 0 else "negative" for x in values]
    assert partial.ran == ran


def test_a_row_that_fails_next_to_a_state_has_no_part_in_the_others(tmp_path: Path) -> None:
    """The others' results are those of the answer, without the next states."""
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    of = scorer(
        tmp_path,
        running_mean(),
        RECORDS__FUNCTIONS=str(tmp_path / "functions.py"),
        STATE__TENSORS='{"sum_in": "sum_out", "count_in": "count_out"}',
    )

    answers = [said(answer) for answer in of.records([record(at, {"x": x}) for at, x in enumerate([1, -1, 3])])]

    assert answers[::2] == [{"mean": 1.0}, {"mean": 3.0}]
    assert "x must not be negative" in answers[1]


class Deadly:
    """A model that ends its process where a row is 13. Notes the first element of each run's rows."""

    def __init__(self) -> None:
        self.ran: list[list[float]] = []

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array] | RunFailure:
        self.ran.append(feeds["x"][:, 0].tolist())
        return RunFailure("its process died", ended_host=True) if 13 in self.ran[-1] else [feeds["x"][:, 0]]


def test_records_of_a_run_that_ended_the_process_run_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Halves would end it as often as there are halvings. The record that ends it again is refused."""
    of = scorer(tmp_path, DOUBLE, RECORDS__ENCODING="json")
    deadly = Deadly()
    monkeypatch.setattr(of._model, "run", deadly.run)

    answers = [said(answer) for answer in of.records([record(at, {"x": x}) for at, x in enumerate([1, 13, 3, 4])])]

    assert answers == [{"y": 1.0}, "the model failed on this record: its process died", {"y": 3.0}, {"y": 4.0}]
    assert deadly.ran == [[1, 13, 3, 4], [1], [13], [3], [4]]
