"""A block is a column of tensors that lie in one array."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.codecs.records.builders import spec
from worker.core.block import Block
from worker.core.chunk import columns_of
from worker.core.records import Array, Tensor
from worker.core.tensors.room import own_room

NUMBERS = np.arange(6, dtype="<f4").reshape(3, 2)
TEXTS = np.array([["a", "b"], ["c", "d"], ["e", "f"]], object)


@pytest.mark.parametrize(
    ("rows", "tensors"),
    [
        (NUMBERS, [row.tobytes() for row in NUMBERS]),
        (NUMBERS[:, 0].copy(), [number.tobytes() for number in NUMBERS[:, 0]]),
        (TEXTS, [["a", "b"], ["c", "d"], ["e", "f"]]),
    ],
)
def test_a_block_is_the_sequence_of_its_tensors(rows: Array, tensors: list[Tensor]) -> None:
    """So it may stand wherever a column does; a part of it is a block."""
    block = Block(rows)
    assert list(block) == tensors
    assert (len(block), block[1]) == (3, tensors[1])
    assert list(block[1:]) == tensors[1:]
    assert isinstance(block[1:], Block)


@pytest.mark.parametrize(("of", "rows"), [(spec("FP32", 2), NUMBERS), (spec("BYTES", 2), TEXTS)])
def test_a_block_joins_to_the_elements_of_its_tensors(of: object, rows: Array) -> None:
    """Without a look at any of them."""
    joined = of.joined(Block(rows), own_room(64))  # type: ignore[attr-defined]
    assert joined.tolist() == of.joined(list(Block(rows)), own_room(64)).tolist()  # type: ignore[attr-defined]


def test_blocks_of_several_chunks_are_one() -> None:
    """A block beside other columns is taken apart."""

    class Of:
        def __init__(self, column: object) -> None:
            self.tensors = [column]

    whole = columns_of([Of(Block(NUMBERS)), Of(Block(NUMBERS[:1]))])  # type: ignore[list-item]
    assert isinstance(whole[0], Block)
    assert len(whole[0]) == 4
    assert list(columns_of([Of(Block(NUMBERS[:1])), Of([b"x"])])[0]) == [NUMBERS[0].tobytes(), b"x"]  # type: ignore[list-item]
