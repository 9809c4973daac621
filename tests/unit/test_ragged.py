"""The tests' transformer and what is asked of it, on ONNX Runtime alone: what holds here must hold in a worker."""

from __future__ import annotations

import numpy as np
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


def test_a_request_holds_its_row(alone: Alone) -> None:
    """What is published can be read back, and the answer to it judged."""
    mine, other = ragged.texts([9, 9], vocabulary=100)
    answer = ragged.as_answer(alone.one(mine))

    assert ragged.row_of(ragged.as_request(mine)).tolist() == mine.tolist()
    assert ragged.fault(answer, alone.one(mine)) is None
    assert "is off by" in str(ragged.fault(answer, alone.one(other)))
    assert "outputs" in str(ragged.fault(answer, alone.one(mine[:5])))
