"""A model of records prepares rows, runs those of about one length together, and draws conclusions for each row."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.models import model, save
from worker.core.failures import Code, RowFault, RunFailure
from worker.core.records import Array, Value
from worker.core.tensors.buckets import WantedAxis
from worker.core.tensors.specs import TensorSpec
from worker.inference.model import Model
from worker.inference.model_loading import load
from worker.inference.records.conclusions import fields_of
from worker.inference.records.parts import Column, Conclusion, Prepared, RowsFailed
from worker.inference.records.record_model import RecordModel
from worker.inference.records.rows_of_one_run import shared_runs
from worker.settings import ModelSettings

BAD = RowFault(Code.INVALID_ARGUMENT, "words: too bad")


def sums() -> bytes:
    """ids, mask INT64 (batch, length), weight FP32 (batch), last FP32 (batch, 1) → total, the sum of the ids under the
    mask times the weight, and next, that and the last.
    """
    return model(
        "int64[batch, length] ids, int64[batch, length] mask, float[batch] weight, float[batch, 1] last => "
        "float[batch, 1] total, float[batch, 1] next",
        """seen = Mul(ids, mask)
        numbers = Cast<to = 1>(seen)
        sum = ReduceSum(numbers, one)
        column = Unsqueeze(weight, one)
        total = Mul(sum, column)
        next = Add(last, total)""",
        {"one": [1]},
    )


class Words:
    """Makes ids of the lengths of words, padded with nines; a word "bad" is a fault."""

    takes: Sequence[TensorSpec] = (TensorSpec("words", "BYTES", ()),)
    makes: Collection[str] = ("ids", "mask")

    def __init__(self, pad: Value | None = 9) -> None:
        self._pad = pad

    def prepare(self, feeds: Mapping[str, Array]) -> Prepared:
        texts = [text.split() for text in feeds["words"].tolist()]
        faults = {row: BAD for row, text in enumerate(texts) if "bad" in text}
        ids = [np.array([len(word) for word in text] or [0]) for text in texts if "bad" not in text]
        mask_pad = None if self._pad is None else 0
        return Prepared(
            {"ids": Column(ids, self._pad), "mask": Column([np.ones_like(row) for row in ids], mask_pad)}, faults
        )


class Recorded:
    """The model's runs, for a look at their shapes."""

    def __init__(self, of: Model) -> None:
        self._of = of
        self.shapes: list[tuple[int, ...]] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._of, name)

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array] | RunFailure:
        self.shapes.append(feeds["ids"].shape)
        return self._of.run(feeds)


def loaded(folder: Path, axes: Sequence[WantedAxis] = ()) -> Model:
    settings = ModelSettings(path=save(sums(), folder), device="cpu")
    return load(settings, max_batch_size=8, wanted_axes=axes)


def conclusions(of: Model) -> list[Conclusion]:
    return [*fields_of({"total": "total"}, of.signature.outputs)]


def feeds(*texts: str) -> dict[str, Array]:
    rows = len(texts)
    weight, last = np.arange(1, rows + 1, dtype="f4"), np.full((rows, 1), 100, "f4")
    return {"words": np.array(texts, object), "weight": weight, "last": last}


def expected(*texts: str) -> list[float]:
    return [at * sum(map(len, text.split())) for at, text in enumerate(texts, 1)]


TEXTS = ("a bb", "", "a " * 400, "ccc bb a", "dd " * 370)


@pytest.fixture(scope="module")
def summing(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return loaded(tmp_path_factory.mktemp("sums"))


def test_the_signature_is_that_of_records(summing: Model) -> None:
    """Inputs as records feed them, and the fields of the answer; a next state stays as it is."""
    served = RecordModel(summing, [Words()], conclusions(summing), ["next"]).signature
    assert [str(spec) for spec in served.inputs] == [
        "weight FP32[batch]",
        "last FP32[batch, 1]",
        "words BYTES[batch]",
    ]
    assert [str(spec) for spec in served.outputs] == ["total FP32[batch]", "next FP32[batch, 1]"]


def test_each_row_has_its_own_answer_whatever_its_length(summing: Model) -> None:
    """Rows of unequal lengths are several runs, and come back in their order, with their states."""
    recorded = Recorded(summing)
    records = RecordModel(recorded, [Words()], conclusions(summing), ["next"])  # type: ignore[arg-type]  # in its place
    outcome = records.run(feeds(*TEXTS))
    assert not isinstance(outcome, RunFailure)
    total, following = outcome
    assert total.tolist() == expected(*TEXTS)
    assert following[:, 0].tolist() == [100 + each for each in expected(*TEXTS)]
    assert len(recorded.shapes) > 1
    assert sum(rows for rows, _ in recorded.shapes) == len(TEXTS)


def test_rows_without_a_pad_share_a_run_only_with_their_equals(summing: Model) -> None:
    """As the operator's functions make them."""
    recorded = Recorded(summing)
    records = RecordModel(recorded, [Words(pad=None)], conclusions(summing))  # type: ignore[arg-type]  # as above
    outcome = records.run(feeds("a bb", "ccc", "d e", "f"))
    assert not isinstance(outcome, RunFailure)
    assert outcome[0].tolist() == expected("a bb", "ccc", "d e", "f")
    assert sorted(recorded.shapes) == [(2, 1), (2, 2)]


def test_rows_are_as_long_as_the_operators_buckets(tmp_path: Path) -> None:
    """`BATCHING__BUCKETS` names the lengths that the model was compiled for."""
    axis = WantedAxis("ids", 1, (4, 512), 9, {"mask": 0})
    recorded = Recorded(loaded(tmp_path, [axis]))
    records = RecordModel(recorded, [Words()], conclusions(recorded._of))  # type: ignore[arg-type]  # as above
    outcome = records.run(feeds(*TEXTS))
    assert not isinstance(outcome, RunFailure)
    assert outcome[0].tolist() == expected(*TEXTS)
    assert {length for _, length in recorded.shapes} <= {4, 512}
    assert records.signature.axes == ()


def test_an_axis_of_inputs_that_records_feed_stays_padded(tmp_path: Path) -> None:
    """The loop pads these, as those of requests."""
    of = loaded(tmp_path, [WantedAxis("ids", 1, (4, 512), 0, {"mask": 0})])
    served = RecordModel(of, [], conclusions(of)).signature
    assert [axis.boundaries for axis in served.axes] == [(4, 512)]
    assert [served.inputs[spot.tensor].name for axis in served.axes for spot in axis.inputs] == ["ids", "mask"]


def test_a_faulty_row_is_named_and_the_others_have_their_fields(summing: Model) -> None:
    """One run is enough for both; nothing runs for faults alone."""
    recorded = Recorded(summing)
    records = RecordModel(recorded, [Words()], conclusions(summing), ["next"])  # type: ignore[arg-type]  # as above

    outcome = records.run(feeds("a", "bad", "c bad", "dd " * 90, "e"))
    nothing = records.run(feeds("bad"))

    assert isinstance(outcome, RunFailure)
    assert outcome.outputs is not None
    assert (outcome.faults, outcome.left) == ({1: BAD, 2: BAD}, ())
    assert [field.tolist() for field in outcome.outputs] == [[1, 720, 5], [[101], [820], [105]]]
    assert sorted(recorded.shapes) == [(1, 90), (2, 1)]
    assert isinstance(nothing, RunFailure)
    assert (nothing.faults, nothing.outputs) == ({0: BAD}, None)


def test_rows_that_take_long_are_left(summing: Model) -> None:
    """A later preparation does not see them, nor the faulty ones."""

    class Lazy(Words):
        def prepare(self, given: Mapping[str, Array]) -> Prepared:
            left = [row for row, text in enumerate(given["words"]) if len(text) > 10]
            taken = [row for row in range(len(given["words"])) if row not in left]
            columns, faults, _ = super().prepare({"words": given["words"][taken]})
            return Prepared(columns, {taken[at]: fault for at, fault in faults.items()}, left)

    class Weights:
        takes: Sequence[TensorSpec] = ()
        makes: Collection[str] = ("weight",)

        def prepare(self, given: Mapping[str, Array]) -> Prepared:
            assert [*given["words"]] == ["a", "a bb"]
            return Prepared({"weight": Column(np.array([7], "f4"))}, {0: BAD})

    records = RecordModel(summing, [Lazy(), Weights()], conclusions(summing))

    outcome = records.run(feeds("long " * 9, "a", "bad", "a bb"))
    left = records.run(feeds("long " * 9))

    assert isinstance(outcome, RunFailure)
    assert outcome.outputs is not None
    assert (outcome.faults, outcome.left) == ({1: BAD, 2: BAD}, (0,))
    assert [field.tolist() for field in outcome.outputs] == [[21]]
    assert isinstance(left, RunFailure)
    assert (left.faults, left.left, left.outputs) == ({}, [0], None)
    assert left.is_of_data


def test_faults_are_told_though_the_others_run_fails(summing: Model) -> None:
    """They run again without the faulty rows, and then fail for themselves."""
    of = SimpleNamespace(signature=summing.signature, is_accelerated=False, run=lambda _: RunFailure("no"))
    records = RecordModel(of, [Words()], conclusions(summing))  # type: ignore[arg-type]  # in its place

    outcome = records.run(feeds("a", "bad"))

    assert isinstance(outcome, RunFailure)
    assert (outcome.faults, outcome.outputs) == ({1: BAD}, None)


def test_a_conclusion_may_refuse_rows_of_any_run(summing: Model) -> None:
    """The faults are by the rows of the batch. The others have their fields, and do not run again."""

    class Choosy:
        spec = TensorSpec("choice", "FP32", ())

        def conclude(self, outputs: Mapping[str, Array], given: Mapping[str, Array]) -> Array:
            assert len(outputs["total"]) == len(given["words"]) == len(given["ids"])
            odd = [row for row, text in enumerate(given["words"]) if len(text) > 1000 or not text]
            if odd:
                raise RowsFailed(dict.fromkeys(odd, BAD))
            return outputs["total"][:, 0]

    outcome = RecordModel(summing, [Words()], [*conclusions(summing), Choosy()]).run(feeds(*TEXTS))

    assert isinstance(outcome, RunFailure)
    assert outcome.outputs is not None
    assert sorted(outcome.faults) == [1, 4]
    assert [field.tolist() for field in outcome.outputs] == [[expected(*TEXTS)[row] for row in (0, 2, 3)]] * 2


def test_a_conclusion_may_take_what_no_preparation_does(summing: Model) -> None:
    """As an operator's `answer` takes the whole record."""

    class Echo:
        spec = TensorSpec("echo", "BYTES", ())

        def conclude(self, _: Mapping[str, Array], given: Mapping[str, Array]) -> Array:
            return given["record"]

    records = RecordModel(summing, [Words()], [Echo()], takes=[TensorSpec("record", "BYTES", ())])
    outcome = records.run({**feeds("a", "b"), "record": np.array([{"n": 1}, {"n": 2}], object)})
    assert not isinstance(outcome, RunFailure)
    assert outcome[0].tolist() == [{"n": 1}, {"n": 2}]


def test_a_failed_run_fails_the_batch(summing: Model) -> None:
    """And so does one that loses rows; the probe is the model's own."""
    failed = RunFailure("no memory", Code.RESOURCE_EXHAUSTED)
    of = SimpleNamespace(signature=summing.signature, is_accelerated=False, run=lambda _: failed, probe=summing.probe)
    records = RecordModel(of, [Words()], conclusions(summing))  # type: ignore[arg-type]  # in its place
    assert records.run(feeds("a")) is failed
    of.run = lambda _: [np.zeros((3, 1), "f4"), np.zeros((1, 1), "f4")]
    lost = records.run(feeds("a"))
    assert isinstance(lost, RunFailure)
    assert lost.loses_rows
    assert not isinstance(records.probe(), RunFailure)


def test_rows_of_equal_shapes_are_one_run_without_a_copy(summing: Model) -> None:
    """A preparation that gives whole arrays, as pictures, is the common case of them."""

    class Even:
        takes = Words.takes
        makes = Words.makes

        def prepare(self, given: Mapping[str, Array]) -> Prepared:
            ones = np.ones((len(given["words"]), 3), np.int64)
            return Prepared({"ids": Column(ones), "mask": Column(ones)})

    class Mixed(Even):
        def prepare(self, given: Mapping[str, Array]) -> Prepared:
            rows = [np.ones(size, np.int64) for size in (1, 3)]
            return Prepared({"ids": Column(rows, 0), "mask": Column(np.ones((2, 3), np.int64))})

    recorded = Recorded(summing)
    outcome = RecordModel(recorded, [Even()], conclusions(summing)).run(feeds("a", "b"))  # type: ignore[arg-type]  # as above
    assert not isinstance(outcome, RunFailure)
    assert (outcome[0].tolist(), recorded.shapes) == ([3, 6], [(2, 3)])
    mixed = RecordModel(summing, [Mixed()], conclusions(summing)).run(feeds("a", "b"))
    assert not isinstance(mixed, RunFailure)
    assert mixed[0].tolist() == [1, 6]


# Which rows share a run


def test_every_row_runs_once_and_padding_is_bounded() -> None:
    """Whatever the lengths are, a run holds no more padding than another run is worth."""
    rng = np.random.default_rng(1)
    for _ in range(200):
        lengths = rng.integers(1, 500, rng.integers(1, 80)).tolist()
        runs = shared_runs([()] * len(lengths), lengths, worth=100)
        assert sorted(row for rows, _ in runs for row in rows) == list(range(len(lengths)))
        for rows, length in runs:
            assert length == max(lengths[row] for row in rows)
            assert sum(length - lengths[row] for row in rows) <= 100


def test_a_few_short_rows_join_longer_ones_where_that_is_cheap() -> None:
    """A run costs something for itself, which is a lot on a GPU."""
    lengths = [100, 4, 300, 5, 101]
    assert [rows for rows, _ in shared_runs([()] * 5, lengths, worth=1000)] == [[1, 3, 0, 4, 2]]
    assert [rows for rows, _ in shared_runs([()] * 5, lengths, worth=10)] == [[1, 3], [0, 4], [2]]


def test_a_run_has_no_more_elements_than_allowed() -> None:
    """But one row at least (`BATCHING__MAX_BATCH_TOKENS`)."""
    runs = shared_runs([()] * 5, [10, 10, 10, 10, 90], worth=0, most=20)
    assert runs == [([0, 1], 10), ([2, 3], 10), ([4], 90)]
