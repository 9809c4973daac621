"""Which axis is padded: as the model's file names it, or as the operator does."""

from __future__ import annotations

import pytest

from worker.core.failures import BadConfiguration
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec
from worker.tools.profile.engine.axes import axis_of

IDS = TensorSpec("ids", "INT64", (None,), ("sequence",))
MASK = TensorSpec("mask", "INT64", (None,), ("sequence",))
KINDS = TensorSpec("kinds", "INT64", (None,), ("kinds_length",))
FIXED = TensorSpec("x", "FP32", (3,), (None,))


def signature(*inputs: TensorSpec) -> Signature:
    return Signature("m", "1", inputs, ())


def test_inputs_whose_axis_has_one_name_are_padded_as_one() -> None:
    """The setting names the first of them; the others follow by their name."""
    axis = axis_of(signature(FIXED, IDS, MASK), None)

    assert axis.spots == ((1, 0), (2, 0))
    assert axis.setting([8, 16]) == {"ids": {"axis": 1, "boundaries": [8, 16], "pad": 0}}
    assert str(axis) == "ids:1"


def test_the_axis_asked_for_names_the_group() -> None:
    """Whichever of its inputs stands first in the file."""
    assert str(axis_of(signature(IDS, MASK), "mask:1")) == "mask:1"


def test_axes_that_the_file_tells_apart_can_be_said_to_be_one() -> None:
    """The setting then lists them, since nothing else says so."""
    axis = axis_of(signature(IDS, MASK, KINDS), "ids:1, kinds:1")

    assert set(axis.spots) == {(0, 0), (1, 0), (2, 0)}
    assert axis.setting([8]) == {"ids": {"axis": 1, "boundaries": [8], "pad": 0, "shared_by": {"kinds": 0}}}


def test_what_is_padded_is_filled_with_nothing_of_its_kind() -> None:
    """Numbers with zeros, texts with empty ones."""
    words = TensorSpec("words", "BYTES", (None,), ("sequence",))

    assert axis_of(signature(words), None).setting([8]) == {"words": {"axis": 1, "boundaries": [8], "pad": ""}}


def test_an_axis_without_a_name_is_one_of_its_own() -> None:
    """Nothing says that two of them are equally long."""
    nameless = TensorSpec("a", "FP32", (None, None))

    assert axis_of(signature(nameless), "a:2").spots == ((0, 1),)


@pytest.mark.parametrize(
    ("inputs", "asked", "told"),
    [
        ((FIXED,), None, "there is nothing to pad: no axis of m is dynamic but the batch's; it takes x FP32"),
        (
            (IDS, KINDS),
            None,
            "several axes are dynamic: say by --bucket-axis which one --lengths is about, ids:1 or ki",
        ),
        ((IDS,), "ids:2", "--bucket-axis ids:2: expected a dynamic axis, ids:1 (the batch is axis 0)"),
        ((IDS,), "ids", "--bucket-axis ids: expected a dynamic axis, ids:1 (the batch is axis 0)"),
        ((IDS, FIXED), "x:1", "--bucket-axis x:1: expected a dynamic axis, ids:1 (the batch is axis 0)"),
        (
            (IDS, TensorSpec("a", "FP32", (3, None))),
            "ids:1,a:2",
            "--bucket-axis: ids:1 and a:2 cannot be padded as one: the numbers differ",
        ),
        (
            (IDS, TensorSpec("a", "FP32", (None,))),
            "ids:1",
            "WORKER_BATCHING__BUCKETS: input ids axis 1 is padded, and the model's file does not say whether axis 1 of",
        ),
        (
            (TensorSpec("a", "FP32", (None, None), ("side", "side")),),
            None,
            "an input would be padded along two axes at once as a:1: advice is for one",
        ),
    ],
)
def test_what_is_no_axis_to_pad_is_refused_with_those_that_are(
    inputs: tuple[TensorSpec, ...], asked: str | None, told: str
) -> None:
    """In one sentence."""
    with pytest.raises(BadConfiguration) as refusal:
        axis_of(signature(*inputs), asked)

    assert str(refusal.value).startswith(told)
