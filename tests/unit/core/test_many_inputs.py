"""Many inputs that are alike are joined by one call, and each is what it would be by itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.chunks import chunk, spec, stacker
from worker.core.block import Block
from worker.core.chunk import Chunk
from worker.core.records import Array, ClosedBy, Tensor
from worker.core.tensors.many_inputs import WideFeeds
from worker.core.tensors.stacking import Stacker, halve
from worker.inference.host.shared_memory import Heap

COLUMNS = 6
KINDS = {"f": "FP32", "n": "INT64"}
SPECS = [
    *[spec(f"{kind}{at}", datatype, (1,)) for at in range(COLUMNS) for kind, datatype in KINDS.items()],
    spec("t", "BYTES", (1,)),
    spec("wide", "FP32", (2,)),
    spec("tt", "BYTES", (1,)),
]


def value(name: str, offset: int, row: int) -> float:
    """A number that no other input, record or row has."""
    return int(name[1:]) * 10_000 + offset * 100 + row + (0.5 if name[0] == "f" else 0)


def records(*offsets: int, rows: int = 1, in_blocks: bool) -> Chunk:
    tensors: list[list[Tensor] | Block] = []
    for each in SPECS:
        own: list[Array] = []
        for offset in offsets:
            if each.is_text:
                own.append(np.array([f"{each.name}{offset}/{row}" for row in range(rows)], object))
            elif each.name == "wide":
                own.append(np.full((rows, 2), offset, "<f4"))
            else:
                own.append(np.array([value(each.name, offset, row) for row in range(rows)], each.dtype))
        if in_blocks:
            tensors.append(Block(np.concatenate(own)))
        else:
            tensors.append([array.tolist() if each.is_text else array.tobytes() for array in own])
    shapes = tuple([tuple([dim or 1 for dim in each.dims]) for each in SPECS])
    made = chunk(*offsets, rows=rows, tensors=[], shapes=shapes)
    return replace(made, tensors=tensors)


@pytest.fixture(params=["own", "shared"])
def by(request: pytest.FixtureRequest) -> Stacker:
    of = stacker(*SPECS)
    return of if request.param == "own" else replace(of, rooms=Heap(1 << 22).room)


@pytest.mark.parametrize("in_blocks", [True, False])
def test_each_input_has_its_own_values_in_the_order_of_the_records(by: Stacker, in_blocks: bool) -> None:  # noqa: FBT001  # a parameter of pytest
    """Three datatypes that alternate, from several chunks, beside another shape."""
    chunks = [records(1, 2, in_blocks=in_blocks), records(3, in_blocks=in_blocks)]

    stacked, refused = by.stack(chunks, ClosedBy.SIZE)

    assert stacked is not None
    assert refused == []
    assert isinstance(stacked.feeds, WideFeeds)
    assert list(stacked.feeds) == [each.name for each in SPECS]
    for each in SPECS[:-3]:
        assert stacked.feeds[each.name].dtype == each.dtype
        assert stacked.feeds[each.name].tolist() == [[value(each.name, offset, 0)] for offset in (1, 2, 3)]
    for name in ("t", "tt"):
        assert stacked.feeds[name].tolist() == [[f"{name}{offset}/0"] for offset in (1, 2, 3)]
    assert stacked.feeds["wide"].tolist() == [[1, 1], [2, 2], [3, 3]]


def test_records_of_several_rows_stay_together(by: Stacker) -> None:
    """The rows of a record are neighbours in each input."""
    stacked, _ = by.stack([records(1, 2, rows=2, in_blocks=False)], ClosedBy.SIZE)

    assert stacked is not None
    expected = [[value("f3", offset, row)] for offset in (1, 2) for row in (0, 1)]
    assert stacked.feeds["f3"].tolist() == expected


def test_a_whole_has_the_feeds_of_its_names_as_its_rows(by: Stacker) -> None:
    """The feeds are views of it. A feed without others that are alike is whole by itself."""
    stacked, _ = by.stack([records(1, 2, in_blocks=True)], ClosedBy.SIZE)

    assert stacked is not None
    assert isinstance(stacked.feeds, WideFeeds)
    assert [name if isinstance(name, str) else len(name) for name in stacked.feeds.wholes] == [
        COLUMNS,
        COLUMNS,
        2,
        "wide",
    ]
    for names, whole in stacked.feeds.wholes.items():
        for name, rows in zip(*([names], [whole]) if isinstance(names, str) else (names, whole), strict=True):
            assert np.shares_memory(rows, stacked.feeds[name])
            assert rows.tolist() == stacked.feeds[name].tolist()


def test_a_half_has_no_wholes(by: Stacker) -> None:
    """The rows of a half do not lie one after the other in a whole."""
    stacked, _ = by.stack([records(1, 2, in_blocks=True)], ClosedBy.SIZE)

    assert stacked is not None
    for half, offset in zip(halve(stacked), (1, 2), strict=True):
        assert not isinstance(half.feeds, WideFeeds)
        assert half.feeds["n5"].tolist() == [[value("n5", offset, 0)]]


def test_inputs_of_which_no_two_are_alike_are_joined_one_by_one() -> None:
    """What takes a few microseconds stays simple."""
    given = chunk(tensors=[[b"\0\0\0\0"], [b"\0\0\0\0"]], shapes=((1,), ()))

    stacked, _ = stacker(spec("x", dims=(1,)), spec("y", dims=())).stack([given], ClosedBy.SIZE)

    assert stacked is not None
    assert not isinstance(stacked.feeds, WideFeeds)
