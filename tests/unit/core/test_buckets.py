"""Padded axes: which requests a bucket takes, and what the operator may name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.chunks import batch, chunk, signature, spec
from worker.core.chunk import Batch
from worker.core.failures import BadConfiguration, Code, Reject
from worker.core.records import Value
from worker.core.tensors.axes import axes_of, check_weight, other_lengths, with_outputs
from worker.core.tensors.buckets import Axis, Buckets, Filled, Spot, WantedAxis, filled, tokens
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec

IDS, MASK = Spot(0, 0), Spot(1, 0)
LENGTH = Axis("input ids axis 1", (4, 8), {IDS: 0, MASK: 0})


def text(symbol: str | None = "sequence") -> Signature:
    """A model of ids and mask, whose axes both have that name in the file."""
    inputs = [TensorSpec(name, "INT64", (None,), (symbol,)) for name in ("ids", "mask")]
    return signature(*inputs, outputs=[spec("pooled"), spec("tokens", dims=(None, 2))])


def wanted(name: str = "ids", axis: int = 1, pad: Value | None = None, **shared_by: Value) -> WantedAxis:
    return WantedAxis(name, axis, (4, 8), pad, shared_by)


@pytest.mark.parametrize(("length", "bucket"), [(1, 4), (4, 4), (5, 8), (8, 8)])
def test_a_request_is_padded_to_the_smallest_bucket_that_holds_it(length: int, bucket: int) -> None:
    """All inputs that share the axis are padded."""
    assert Buckets((LENGTH,)).padded(((length,), (length,))) == ((bucket,), (bucket,))


def test_a_request_longer_than_the_largest_bucket_is_refused() -> None:
    """The message names the longest length that is taken."""
    with pytest.raises(Reject, match="input ids axis 1: 9 long, at most 8 is taken") as refusal:
        Buckets((LENGTH,)).check(((9,), (9,)))

    assert refusal.value.code is Code.RESOURCE_EXHAUSTED


def test_inputs_that_share_an_axis_must_be_equally_long() -> None:
    """After padding, their outputs would be cut back to different lengths."""
    with pytest.raises(Reject, match="must be equally long, got 3, 5"):
        Buckets((LENGTH,)).check(((3,), (5,)))


def test_an_axis_leaves_the_others_alone() -> None:
    """Two axes of one input have separate boundaries."""
    image = Buckets(
        (Axis("height", (10, 20), {Spot(0, 1): 0}), Axis("width", (5, 50), {Spot(0, 2): 7})),
        [spec(dims=(3, None, None))],
    )

    assert image.padded(((3, 11, 4),)) == ((3, 20, 5),)
    assert image.label(((3, 20, 5),)) == "20x5"
    assert image.row_bytes(((3, 20, 5),)) == 1200
    assert image.pads == {0: 0}


def test_a_row_costs_the_elements_of_its_largest_input() -> None:
    """Smaller inputs cost nothing extra."""
    assert tokens(((16,), (16, 4), ())) == 64


def test_padding_is_counted_by_the_largest_input() -> None:
    """Data are the elements that requests bring; padding is the rest."""
    chunks = [chunk(0, 1, rows=[2, 1], shapes=[((3,), ()), ((4,), ())]), chunk(2, shapes=((2,), ()))]
    feeds = {"ids": batch().feeds["x"].repeat(4, axis=1).repeat(2, axis=0), "flag": batch().feeds["x"][:1, 0]}

    assert filled(Batch(chunks, feeds, 4, batch().closed_by)) == Filled(data=12, padding=4)


def test_inputs_whose_axis_has_one_name_are_padded_together() -> None:
    """It is enough to name one of them."""
    (axis,) = axes_of(text(), [wanted(pad=1)])

    assert axis.inputs == {IDS: 1, MASK: 0}
    assert axis.boundaries == (4, 8)


def test_where_the_file_names_nothing_the_operator_does() -> None:
    """Each has its own pad."""
    (both,) = axes_of(text(None), [wanted(mask=3)])

    assert both.inputs == {IDS: 0, MASK: 3}


def test_strings_are_padded_with_empty_ones() -> None:
    """The operator may name another string."""
    words = signature(TensorSpec("ids", "INT64", (None,), ("n",)), TensorSpec("words", "BYTES", (None,), ("n",)))

    assert axes_of(words, [wanted()])[0].inputs == {IDS: 0, MASK: ""}
    assert axes_of(words, [wanted(words="-")])[0].inputs == {IDS: 0, MASK: "-"}


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ([wanted("nobody")], "the model has no input nobody; it takes ids"),
        ([wanted(axis=2)], "has no axis 2; the batch axis is 0"),
        ([wanted(), wanted("mask")], "input mask axis 1 is padded twice"),
        ([wanted(pad=0.5)], "ids is INT64 and cannot be padded with 0.5: give a whole number"),
        ([wanted(pad="x")], "cannot be padded with 'x'"),
    ],
)
def test_what_cannot_be_padded_is_refused_at_start(axes: list[WantedAxis], message: str) -> None:
    """The message names the axis or input."""
    with pytest.raises(BadConfiguration, match=message):
        axes_of(text(), axes)


def test_an_axis_of_fixed_length_needs_no_padding() -> None:
    """All requests have that length already."""
    with pytest.raises(BadConfiguration, match=r"axis 1 of x FP32\[batch, 1\] has a fixed length"):
        axes_of(signature(), [wanted("x")])


@pytest.mark.parametrize(
    ("datatype", "pad", "fits"),
    [
        ("FP32", 0.5, True),
        ("FP16", 1e6, False),
        ("FP32", float("inf"), False),
        ("INT64", 1 << 63, False),
        ("BOOL", True, True),
        ("BOOL", 1, False),
        ("UINT8", 255, True),
        ("UINT8", -1, False),
        ("BYTES", "", True),
        ("BYTES", 0, False),
    ],
)
def test_a_pad_must_be_a_value_of_its_input(datatype: str, pad: Value, fits: bool) -> None:  # noqa: FBT001  # a parameter
    """A pad that numpy would round, wrap or fail on is refused before."""
    model = signature(TensorSpec("ids", datatype, (None,)))

    if fits:
        assert axes_of(model, [wanted(pad=pad)])[0].inputs == {IDS: pad}
    else:
        with pytest.raises(BadConfiguration, match="cannot be padded with"):
            axes_of(model, [wanted(pad=pad)])


def test_outputs_as_long_as_the_axis_are_cut_back() -> None:
    """Two runs show which outputs have the axis, whatever the file says."""
    seen = with_outputs(text(), LENGTH, (4, 8), ([(1, 2), (1, 4, 2)], [(1, 2), (1, 8, 2)]))

    assert seen.outputs == (Spot(1, 0),)


def test_an_output_that_follows_the_axis_at_another_length_is_refused() -> None:
    """If an output is half as long, say, it is unknown which elements belong to the padding."""
    with pytest.raises(BadConfiguration, match=r"output tokens has shape \[1, 2, 2\] where .* is 4 and \[1, 4, 2\]"):
        with_outputs(text(), LENGTH, (4, 8), ([(1, 2), (1, 2, 2)], [(1, 2), (1, 4, 2)]))


@pytest.mark.parametrize(("boundaries", "others"), [((4, 8, 16), [16]), ((4,), [3, 8, 2]), ((2,), [1, 4, 1])])
def test_a_second_length_shows_what_depends_on_the_axis(boundaries: tuple[int, ...], others: list[int]) -> None:
    """It is the last bucket. A single bucket is compared with lengths near it, since not every length may run."""
    assert list(other_lengths(replace(LENGTH, boundaries=boundaries))) == others


@pytest.mark.parametrize(("longest", "fits"), [(62_500_000, True), (62_500_001, False), (10**30, False)])
def test_no_bucket_is_larger_than_any_request(longest: int, fits: bool) -> None:  # noqa: FBT001  # a parameter
    """Otherwise a start would allocate it, and use up the machine's memory."""
    model = replace(text(), axes=(replace(LENGTH, boundaries=(4, longest)),))

    if fits:
        check_weight(model)
    else:
        with pytest.raises(BadConfiguration, match=f"takes {longest * 16} bytes at most, more than any .* lower"):
            check_weight(model)


def test_a_row_that_is_too_large_without_buckets_is_not_laid_to_them() -> None:
    """No buckets are set; the model's file fixes the size."""
    model = Signature("m", "1", (TensorSpec("x", "FP32", (250_000_001,)),), (TensorSpec("y", "FP32", ()),))

    with pytest.raises(BadConfiguration, match=r"^one row takes 1000000004 bytes.*: export the model"):
        check_weight(model)
