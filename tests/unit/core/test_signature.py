"""The check of names, datatypes, shapes and row counts."""

from __future__ import annotations

import pytest

from tests.chunks import signature, spec
from worker.core.failures import (
    BadConfiguration,
    Code,
    DeadlineMissed,
    KafkaFatal,
    ModelBroken,
    Reject,
    Stop,
    TooManyRejections,
)
from worker.core.tensors.signature import MAX_DIMENSIONS
from worker.core.tensors.specs import NamedTensor

IMAGE = spec("image", "UINT8", (None, 3))
SCALE = spec("scale", "FP32", ())


def tensor(name: str, *shape: int) -> NamedTensor:
    return NamedTensor(name, "FP32", shape, b"")


def test_a_model_by_another_name_is_not_found() -> None:
    """Name and version are checked only when they are given."""
    model = signature()
    model.check_model(None, None)
    model.check_model("m", "1")

    with pytest.raises(Reject, match="model 'other' is not served here; 'm' is") as wrong_name:
        model.check_model("other", None)
    with pytest.raises(Reject, match="version '2' of m is not served here; '1' is") as wrong_version:
        model.check_model("m", "2")

    assert wrong_name.value.code is wrong_version.value.code is Code.NOT_FOUND


def test_a_fitting_claim_counts_its_elements() -> None:
    """The count is rows times dimensions; dynamic dimensions count as claimed."""
    model = signature(IMAGE, SCALE)

    assert model.check_claim("image", "UINT8", [2, 5, 3]) == 30
    assert model.check_claim("scale", "FP32", [7]) == 7


@pytest.mark.parametrize(
    ("name", "datatype", "shape", "message"),
    [
        ("picture", "UINT8", [1, 5, 3], r"no input 'picture'; it takes image UINT8\[batch, \?, 3\]"),
        ("image", "FP32", [1, 5, 3], "expected datatype UINT8, got 'FP32'"),
        ("image", "UINT8", [1, 15], r"expected image UINT8\[batch, \?, 3\], got shape \[1, 15\]"),
        ("image", "UINT8", [1, 5, 4], r"got shape \[1, 5, 4\]"),
        ("image", "UINT8", [1] * (MAX_DIMENSIONS + 1), "9 dimensions, at most 8 are possible"),
        ("image", "UINT8", [0, 5, 3], "at least 1"),
        ("image", "UINT8", [1, -5, 3], "at least 1"),
        ("image", "UINT8", [1, 5.0, 3], "at least 1"),
        ("image", "UINT8", [True, 5, 3], "at least 1"),
        ("image", "UINT8", ["1", 5, 3], "at least 1"),
    ],
)
def test_a_claim_that_does_not_fit_is_rejected(name: str, datatype: str, shape: list[object], message: str) -> None:
    """The message tells the publisher what was expected, and what came."""
    with pytest.raises(Reject, match=message) as rejected:
        signature(IMAGE).check_claim(name, datatype, shape)

    assert rejected.value.code is Code.INVALID_ARGUMENT
    assert rejected.value.message == str(rejected.value)


def test_sizes_that_overflow_machine_integers_are_counted_right() -> None:
    """The product of claimed dimensions is a Python integer, so no large claim can look small."""
    assert signature(IMAGE).check_claim("image", "UINT8", [2**12, 2**60, 3]) == 3 * 2**72


def test_a_request_of_too_many_rows_is_rejected() -> None:
    """Its claim is enough; nothing is decoded."""
    with pytest.raises(Reject, match="9 rows, at most 8") as rejected:
        signature(max_rows=8).check_claim("x", "FP32", [9, 1])

    assert rejected.value.code is Code.RESOURCE_EXHAUSTED


def test_a_long_claim_does_not_make_a_long_message() -> None:
    """The message quotes at most a line of what a publisher sends."""
    with pytest.raises(Reject) as rejected:
        signature().check_claim("x" * 1000, "FP32", [1])

    assert len(rejected.value.message) < 200


COLUMNS = signature(*[spec(f"c{at}") for at in range(500)], outputs=[spec(f"y{at}") for at in range(4)])


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({}, "missing input c0, c1, c2 and 497 more; the model takes c0 FP32[batch, 1], c1 FP32[batch, 1], "),
        (dict.fromkeys(range(498), 1), "missing input c498, c499; the model takes "),
        ({at: 1 + at % 5 for at in range(500)}, "same number of rows, got c0: 1, c1: 2, c2: 3 and 2 more"),
    ],
)
def test_of_many_inputs_a_message_names_three(rows: dict[int, int], said: str) -> None:
    """It counts the others: a line of 500 names says less."""
    given = [NamedTensor(f"c{at}", "FP32", (count, 1), b"") for at, count in rows.items()]

    with pytest.raises(Reject) as refused:
        COLUMNS.judge(given)

    assert said in refused.value.message
    assert len(refused.value.message) < 200


def test_a_request_is_judged_in_the_models_order() -> None:
    """The result has the model's order, whatever order the tensors came in."""
    model = signature(IMAGE, SCALE)

    judged = model.judge([NamedTensor("scale", "FP32", (2,), b"s"), NamedTensor("image", "UINT8", (2, 5, 3), b"i")])

    assert judged == (2, ((5, 3), ()), (b"i", b"s"))


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ([tensor("image", 1, 5, 3), tensor("image", 1, 5, 3)], "given twice"),
        ([tensor("scale", 1)], "missing input image; the model takes image UINT8.*, scale FP32"),
        ([tensor("image", 2, 5, 3), tensor("scale", 3)], "same number of rows, got image: 2, scale: 3"),
    ],
)
def test_a_request_with_the_wrong_inputs_is_rejected(tensors: list[NamedTensor], message: str) -> None:
    """Each input must come exactly once, all with equal row counts."""
    with pytest.raises(Reject, match=message):
        signature(IMAGE, SCALE).judge(tensors)


def test_each_reason_to_stop_has_its_exit_code() -> None:
    """So the starter of the process can tell them apart."""
    reasons = (BadConfiguration, DeadlineMissed, KafkaFatal, ModelBroken, TooManyRejections)

    assert [reason.exit_code for reason in reasons] == [2, 3, 4, 5, 6]
    assert all(issubclass(reason, Stop) for reason in reasons)
