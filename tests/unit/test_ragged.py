"""The tests' transformer and what is asked of it, on ONNX Runtime alone: what holds here must hold in a worker."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests import models, ragged
from tests.ragged import TOLERANCE, Alone, Outputs


@pytest.fixture(scope="module")
def alone() -> Alone:
    """A small one, of two layers."""
    return Alone(models.encoder(layers=2))


def furthest(found: Outputs, expected: Outputs) -> float:
    """The largest difference; fails where a shape is another."""
    assert {name: found[name].shape for name in found} == {name: expected[name].shape for name in expected}
    return max(float(np.abs(found[name] - expected[name]).max()) for name in expected)


def test_padding_changes_nothing_of_a_row(alone: Alone) -> None:
    """Whatever its own length and its neighbours', each row gets what it gets by itself."""
    rows = ragged.texts([4, 30, 7, 64], vocabulary=100)

    found = alone.run(rows, 64)

    for at, row in enumerate(rows):
        assert furthest(ragged.cut(found, at, len(row)), alone.one(row)) < TOLERANCE


def test_tokens_their_order_and_their_number_matter(alone: Alone) -> None:
    """Each changes the answer by far more than is tolerated: a row cut short or mixed up is seen."""
    (row,) = ragged.texts([12], vocabulary=100)
    expected = alone.one(row)

    others = [alone.one(each)["embedding"] for each in (row[::-1], (row + 1) % 100, np.append(row, 1))]

    assert all(np.abs(other - expected["embedding"]).max() > 100 * TOLERANCE for other in others)


def test_a_row_that_is_all_padding_is_finite(alone: Alone) -> None:
    """A batch that is filled up with empty rows has no NaN in it."""
    found = alone.run([np.array([], np.int64)], 16)

    assert all(np.isfinite(values).all() for values in found.values())


def test_the_axes_have_their_names_in_the_file() -> None:
    """Both inputs and the outputs for each token share `sequence`; `embedding` has no such axis."""
    graph = onnx.load_from_string(models.encoder()).graph

    named = {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.output)
    }

    assert named == {
        "input_ids": ["batch", "sequence"],
        "attention_mask": ["batch", "sequence"],
        "embedding": ["batch", 16],
        "tokens": ["batch", "sequence", 4],
    }


def test_lengths_have_a_long_tail() -> None:
    """A mean of about 40, most far below the longest, the rarest bucket used; the same for the same seed."""
    lengths = ragged.long_tailed(4000)

    assert 38 < np.mean(lengths) < 42
    assert (min(lengths), max(lengths)) == (ragged.LEAST, ragged.MOST)
    assert np.median(lengths) < 32
    assert {ragged.bucket(length) for length in lengths} == set(ragged.BOUNDARIES)
    assert ragged.long_tailed(40) == lengths[:40]
    assert ragged.long_tailed(40, seed=1) != lengths[:40]


def test_a_request_holds_its_row(alone: Alone) -> None:
    """What is published can be read back, and the answer to it judged."""
    mine, other = ragged.texts([9, 9], vocabulary=100)
    answer = ragged.as_answer(alone.one(mine))

    assert ragged.row_of(ragged.as_request(mine)).tolist() == mine.tolist()
    assert ragged.fault(answer, alone.one(mine)) is None
    assert "is off by" in str(ragged.fault(answer, alone.one(other)))
    assert "outputs" in str(ragged.fault(answer, alone.one(mine[:5])))
