"""Inputs that a request leaves out: their length, their content, and when they cannot be filled in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.chunks import signature, spec
from worker.core.failures import Code, Reject
from worker.core.records import Value
from worker.core.tensors.left_out_inputs import MAX_FILLED_BYTES
from worker.core.tensors.signature import Judged
from worker.core.tensors.specs import NamedTensor, TensorSpec

IDS = TensorSpec("ids", "INT64", (None,), ("length",))


def optional(
    name: str, *dims: int | None, symbols: Sequence[str | None] = (), datatype: str = "INT64", default: Value = 1
) -> TensorSpec:
    return TensorSpec(name, datatype, dims, tuple(symbols), default)


def given(name: str, *shape: int, datatype: str = "INT64") -> NamedTensor:
    return NamedTensor(name, datatype, shape, f"the bytes of {name}".encode())


def judged(inputs: Sequence[TensorSpec], *tensors: NamedTensor) -> Judged:
    return signature(*inputs).judge(tensors)


def test_an_input_left_out_is_as_long_as_the_given_axis_of_its_name() -> None:
    """The axes share a name; place and number of dimensions may differ."""
    frame = TensorSpec("frame", "FP32", (3, None), (None, "length"))
    mask = optional("mask", None, symbols=["length"])

    rows, shapes, tensors = judged([mask, frame], given("frame", 2, 3, 5))

    assert (rows, shapes) == (2, ((5,), (3, 5)))
    assert tensors == (np.ones((2, 5), "<i8").tobytes(), b"the bytes of frame")


def test_requests_that_leave_out_as_much_share_it() -> None:
    """A poll may bring hundreds of requests that each leave out megabytes."""
    asked = signature(IDS, optional("mask", None, 1024, symbols=["length", None]))

    first, again = (asked.judge([given("ids", 1, 1000)]).tensors[1] for _ in range(2))
    others = [asked.judge([given("ids", 1, length)]).tensors[1] for length in (1001, 1002, 3)]

    assert first is again
    assert [len(other) for other in others] == [8 * 1024 * length for length in (1001, 1002, 3)]


def test_of_two_axes_of_its_name_the_first_given_one_counts() -> None:
    """The model's order decides. An axis of an input that is itself left out does not count."""
    first, second = (optional(name, None, symbols=["length"]) for name in ("first", "second"))

    assert judged([IDS, first, second], given("ids", 1, 4)).shapes == ((4,), (4,), (4,))
    assert judged([first, IDS, second], given("ids", 1, 4), given("first", 1, 6)).shapes == ((6,), (4,), (6,))


def test_without_a_name_the_same_place_of_an_input_with_as_many_dimensions_tells() -> None:
    """A file without axis names gives no better hint."""
    image, words = spec("image", dims=(None, None)), spec("words", dims=(None,))
    mask = optional("mask", None)

    shapes = judged([image, words, mask], given("image", 2, 8, 9), given("words", 2, 5)).shapes

    assert shapes == ((8, 9), (5,), (5,))


@pytest.mark.parametrize(
    ("datatype", "default", "expected"),
    [
        ("BOOL", True, np.array([True, True])),
        ("INT8", -3, np.array([-3, -3], "i1")),
        ("UINT64", 2**64 - 1, np.array([2**64 - 1] * 2, "<u8")),
        ("FP16", 0.5, np.array([0.5, 0.5], "<f2")),
        ("FP32", 1, np.array([1, 1], "<f4")),
        ("FP64", 0.1, np.array([0.1, 0.1], "<f8")),
    ],
)
def test_every_element_is_the_default(datatype: str, default: Value, expected: np.ndarray) -> None:
    """The bytes are as on the wire: little-endian numbers of the input's datatype."""
    filled = judged([IDS, optional("x", 2, datatype=datatype, default=default)], given("ids", 1, 3)).tensors[1]

    assert filled == expected.tobytes()


def test_strings_are_filled_in_too() -> None:
    """They are a flat list."""
    filled = judged([IDS, optional("lang", datatype="BYTES", default="en")], given("ids", 2, 3)).tensors[1]

    assert filled == ["en", "en"]


def test_only_what_has_no_default_is_missing() -> None:
    """The message names the inputs that may be left out, and their defaults."""
    inputs = [IDS, optional("mask", None, symbols=["length"]), optional("lang", datatype="BYTES", default="en")]

    with pytest.raises(Reject) as rejected:
        judged(inputs, given("mask", 1, 3))

    assert rejected.value.message == (
        "missing input ids; the model takes ids INT64[batch, length], mask INT64[batch, length] (1 if left out), "
        'lang BYTES[batch] ("en" if left out)'
    )


def test_a_length_that_no_given_input_tells_is_rejected() -> None:
    """Either of two optional inputs gives the other its length; a request must bring one of them."""
    mask, types = (optional(name, None, symbols=["target"]) for name in ("mask", "types"))

    with pytest.raises(
        Reject, match="input mask was left out, and nothing says how long its axis 1 is: give it, or types"
    ):
        judged([IDS, mask, types], given("ids", 1, 5))
    assert judged([IDS, mask, types], given("ids", 1, 5), given("types", 1, 2)).shapes == ((5,), (2,), (2,))


@pytest.mark.parametrize(("datatype", "element", "default"), [("FP64", 8, 0.0), ("BYTES", 64, "")])
def test_no_short_request_fills_the_memory(datatype: str, element: int, default: Value) -> None:
    """A request may claim many rows at no cost where the rest may be left out."""
    image = optional("image", MAX_FILLED_BYTES // element // 4, datatype=datatype, default=default)

    with pytest.raises(
        Reject, match=f"image was left out and would take {MAX_FILLED_BYTES // 4 * 5} bytes"
    ) as rejected:
        judged([IDS, image], given("ids", 5, 1))

    assert rejected.value.code is Code.RESOURCE_EXHAUSTED
    assert judged([IDS, image], given("ids", 4, 1)).rows == 4
