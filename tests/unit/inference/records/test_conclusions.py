"""The entries of `[records.answer]`: what they make of a model's outputs, and which ones a model cannot satisfy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from worker.core.failures import BadConfiguration, Code
from worker.core.records import Array
from worker.core.tensors.specs import TensorSpec
from worker.inference.records.conclusions import OPERATIONS, fields_of
from worker.inference.records.parts import Conclusion, RowsFailed

LOGITS = np.array([[1, 3, 2], [9, 0, 0], [5, 5, 4]], "f4")
PIECES = np.arange(12, dtype="f4").reshape(2, 2, 3)
MASK = np.array([[1, 1, 0], [1, 0, 0]], "i8")
TOKENS = np.array([[[1, 2], [3, 6], [99, 99]], [[-4, 3], [99, 99], [99, 99]]], "f4")


def output(array: Array, name: str = "y", *dims: int | None) -> TensorSpec:
    """The spec of an output that gives such arrays."""
    datatypes = {"f2": "FP16", "f4": "FP32", "f8": "FP64", "i8": "INT64", "b1": "BOOL", "O": "BYTES"}
    return TensorSpec(name, datatypes[array.dtype.str.lstrip("<|")], dims or array.shape[1:])


def field(
    entry: Any, array: Array, *dims: int | None, mask: Array | None = None, labels: Sequence[str] = ()
) -> Conclusion:
    inputs = () if mask is None else ("attention_mask",)
    (one,) = fields_of({"field": entry}, [output(array, "y", *dims)], inputs, labels)
    return one


def made(entry: Any, array: Array, *dims: int | None, mask: Array | None = None, labels: Sequence[str] = ()) -> Array:
    """The field that an entry makes of the output `y`; it must be as its spec says."""
    one = field(entry, array, *dims, mask=mask, labels=labels)
    found = one.conclude({"y": array}, {} if mask is None else {"attention_mask": mask})
    assert found.dtype == one.spec.dtype
    assert len(found.shape) == len(one.spec.dims) + 1
    assert all(dim in (None, size) for dim, size in zip(one.spec.dims, found.shape[1:], strict=True))
    return found


def faults(entry: Any, array: Array, *dims: int | None, mask: Array | None = None) -> Mapping[int, tuple[Code, str]]:
    """The faults of the rows of which the entry makes nothing."""
    one = field(entry, array, *dims, mask=mask)
    with pytest.raises(RowsFailed) as failed:
        one.conclude({"y": array}, {} if mask is None else {"attention_mask": mask})
    return {row: (fault.code, fault.message) for row, fault in failed.value.faults.items()}


def refusal(entry: Any, array: Array = LOGITS, *dims: int | None) -> str:
    with pytest.raises(BadConfiguration) as refused:
        field(entry, array, *dims)
    assert str(refused.value).startswith("[records.answer] field: ")
    return str(refused.value).removeprefix("[records.answer] field: ")


# Outputs and their elements


@pytest.mark.parametrize("shape", [(3,), (3, 1), (3, 1, 1)])
def test_one_number_a_row_is_a_number(shape: tuple[int, ...]) -> None:
    """It is no list of one, whatever shape the model gives it."""
    array = np.array([1, 2, 3], "f4").reshape(shape)

    assert made("y", array).tolist() == [1, 2, 3]


def test_several_numbers_a_row_stay_as_they_are() -> None:
    """An open dimension is a list, even where it has one element: its length may be another next time."""
    assert made("y", LOGITS).tolist() == LOGITS.tolist()
    assert made("y", LOGITS[:, :1], None).tolist() == [[1], [9], [5]]


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ("y[1]", PIECES[:, 1]),
        ("y[1,2]", PIECES[:, 1, 2]),
        ("y[ 1 , 2 ]", PIECES[:, 1, 2]),
        ({"output": "y[0]"}, PIECES[:, 0]),
        ({"softmax": "y[1,2]"}, None),
    ],
)
def test_an_element_is_named_by_its_indexes(entry: Any, found: Array | None) -> None:
    """An element may be a tensor itself, but an operation on several numbers takes no single one."""
    if found is None:
        assert refusal(entry, PIECES) == "y FP32[batch] has one element a row, and several are needed"
    else:
        assert made(entry, PIECES).tolist() == found.tolist()


def test_an_output_may_have_brackets_in_its_name() -> None:
    """Its whole name comes before an element of another."""
    outputs = [output(LOGITS, "y"), output(LOGITS[:, :1], "y[1]")]

    (one,) = fields_of({"field": "y[1]"}, outputs)

    assert one.conclude({"y": LOGITS, "y[1]": LOGITS[:, :1]}, {}).tolist() == [1, 9, 5]


def test_fp16_becomes_fp32() -> None:
    """So every encoding of answers has a number for it, of the same value."""
    halves = np.array([[0.1], [65504]], "f2")

    assert made("y", halves).tolist() == [float(np.float16(0.1)), 65504]


def test_without_entries_each_output_is_a_field() -> None:
    """Each has the name of its output."""
    outputs = [output(LOGITS, "a"), output(LOGITS[:, :1], "b")]

    found = [one.spec for one in fields_of({}, outputs)]

    assert found == [TensorSpec("a", "FP32", (3,)), TensorSpec("b", "FP32", ())]


# Classes


def test_the_highest_value_has_a_name() -> None:
    """Of equal values the first one counts, as in numpy."""
    assert made({"argmax": "y"}, LOGITS).tolist() == [1, 0, 0]
    assert made({"argmax": "y", "names": ["a", "b", "c"]}, LOGITS).tolist() == ["b", "a", "a"]
    assert made({"argmax": "y", "names": {"0": "a", "2": "c", "1": "b"}}, LOGITS, None).tolist() == ["b", "a", "a"]
    assert made({"argmax": "y", "names": ["a", "b", "c"]}, PIECES).tolist() == [["c", "c"], ["c", "c"]]


def test_names_are_lines_of_a_file(tmp_path: Path) -> None:
    """A thousand names do not belong into settings."""
    path = tmp_path / "labels.txt"
    path.write_text("zero\nähnlich\ntwo\n", encoding="utf-8")

    assert made({"argmax": "y", "names": str(path)}, LOGITS).tolist() == ["ähnlich", "zero", "zero"]


def test_a_models_folder_names_its_classes() -> None:
    """The labels belong to an output that has as many classes; names in the entry come before them."""
    assert made({"argmax": "y"}, LOGITS, labels=("a", "b", "c")).tolist() == ["b", "a", "a"]
    assert made({"argmax": "y"}, LOGITS, labels=("a", "b")).tolist() == [1, 0, 0]
    assert made({"argmax": "y", "names": ["d", "e", "f"]}, LOGITS, labels=("a", "b", "c")).tolist() == ["e", "d", "d"]


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8"])
@pytest.mark.parametrize("count", [1, 2, 3, 20])
def test_the_top_values_come_in_order(dtype: str, count: int) -> None:
    """Equal ones are in the order of their indexes, and minus infinity is a value as any other."""
    rng = np.random.default_rng(7)
    array = rng.integers(-3, 3, (50, 20)).astype(dtype)
    if dtype != "i8":
        array[rng.random(array.shape) < 0.6] = -np.inf
        array[7, 2:] = -np.inf
    ordered = [sorted([(-value, at) for at, value in enumerate(row)]) for row in array.tolist()]
    expected = [[at for _, at in row[:count]] for row in ordered]

    found = made({"argmax": "y", "top": count}, array)

    assert found.reshape(50, count).tolist() == expected
    values = made({"output": "y", "top": count}, array).reshape(50, count)
    assert values.tolist() == [[-value for value, _ in row[:count]] for row in ordered]


def test_top_classes_have_names_and_scores() -> None:
    """They are two fields, in one order."""
    assert made({"argmax": "y", "top": 2, "names": ["a", "b", "c"]}, LOGITS).tolist() == [
        ["b", "c"],
        ["a", "b"],
        ["a", "b"],
    ]
    powers = np.exp(LOGITS.astype("f8"))
    expected = -np.sort(-powers / powers.sum(axis=1, keepdims=True))[:, :2]
    np.testing.assert_allclose(made({"softmax": "y", "top": 2}, LOGITS), expected, rtol=1e-6)
    np.testing.assert_allclose(made({"softmax": "y", "top": 1}, LOGITS), expected[:, 0], rtol=1e-6)


def test_softmax_and_sigmoid_are_exact_for_large_logits() -> None:
    """Their powers do not overflow, and no warning is given."""
    array = np.array([[1000, 0], [-1000, 1000], [0, 0]], "f4")

    assert made({"softmax": "y"}, array).tolist() == [[1, 0], [0, 1], [0.5, 0.5]]
    assert made({"softmax": "y", "at": 1}, array).tolist() == [0, 1, 0.5]
    assert made({"sigmoid": "y"}, array).tolist() == [[1, 0.5], [0, 1], [0.5, 0.5]]
    assert made({"sigmoid": "y", "top": 1}, array).tolist() == [1, 1, 0.5]


def test_softmax_is_over_the_last_dimension() -> None:
    """Sums of each row of classes are 1, of both datatypes."""
    for dtype in ("f4", "f8"):
        np.testing.assert_allclose(made({"softmax": "y"}, PIECES.astype(dtype)).sum(axis=-1), np.ones((2, 2)), 1e-6)


def test_numbers_have_names() -> None:
    """A list begins with 0; a table names any numbers, as -1 and 1 of an isolation forest."""
    assert made({"output": "y", "names": ["no", "yes"]}, np.array([1, 0], "i8")).tolist() == ["yes", "no"]
    assert made({"output": "y", "names": ["no", "yes"]}, np.array([[True], [False]])).tolist() == ["yes", "no"]
    named = {"output": "y", "names": {"-1": "outlier", "1": "usual"}}
    assert made(named, np.array([[1], [-1]], "i8")).tolist() == ["usual", "outlier"]


# Embeddings


def test_pooling_takes_the_tokens_that_the_mask_says() -> None:
    """Padding does not count, whatever the model gives for it."""
    assert made({"mean": "y"}, TOKENS, None, 2, mask=MASK).tolist() == [[2, 4], [-4, 3]]
    assert made({"max": "y"}, TOKENS, None, 2, mask=MASK).tolist() == [[3, 6], [-4, 3]]
    assert made({"cls": "y"}, TOKENS, None, 2).tolist() == [[1, 2], [-4, 3]]
    assert made({"last": "y"}, TOKENS, None, 2, mask=MASK).tolist() == [[3, 6], [-4, 3]]
    on_the_left = np.array([[0, 1, 1], [0, 0, 1]])
    assert made({"last": "y"}, TOKENS, None, 2, mask=on_the_left).tolist() == TOKENS[:, 2].tolist()


def test_a_vector_may_have_length_one() -> None:
    """A vector of zeros stays one."""
    vectors = np.array([[3, 4], [0, 0]], "f4")

    np.testing.assert_allclose(made({"output": "y", "normalize": True}, vectors), [[0.6, 0.8], [0.0, 0.0]], rtol=1e-6)
    assert made({"output": "y", "normalize": False}, vectors).tolist() == vectors.tolist()
    np.testing.assert_allclose(
        made({"mean": "y", "normalize": True}, TOKENS, None, 2, mask=MASK), [[0.4472136, 0.8944272], [-0.8, 0.6]], 1e-6
    )


@pytest.mark.parametrize(("dtype", "off"), [("f4", 1e-6), ("f2", 1e-6), ("f8", 1e-12)])
def test_mean_pooling_is_as_exact_as_its_type(dtype: str, off: float) -> None:
    """It is sentence-transformers' formula: the sum of the tokens that count, by their number."""
    rng = np.random.default_rng(3)
    tokens = rng.standard_normal((8, 40, 16)).astype(dtype)
    mask = (np.arange(40) < rng.integers(1, 41, 8)[:, None]).astype("i8")
    mask[5] = 0
    exact = (tokens.astype("f8") * mask[:, :, None]).sum(axis=1) / np.maximum(mask.sum(axis=1), 1e-9)[:, None]

    np.testing.assert_allclose(made({"mean": "y"}, tokens, None, 16, mask=mask), exact, atol=off)


# Rows of which nothing can be made


def test_a_row_with_nan_has_no_class() -> None:
    """A name would hide that the model failed; its neighbours have theirs."""
    array = LOGITS.copy()
    array[1, 2] = np.nan

    for entry in ({"argmax": "y"}, {"argmax": "y", "top": 2}, {"softmax": "y", "top": 3}):
        (row, fault), *others = faults(entry, array).items()
        assert not others
        assert (row, fault) == (1, (Code.INTERNAL, "field field, from output y: the model answered NaN"))


def test_nan_stays_what_it_is_where_numbers_are_answered() -> None:
    """The worker judges it there, as in each output."""
    array = np.array([[np.nan, 1], [np.inf, 1]], "f4")

    assert np.isnan(made({"softmax": "y"}, array)).any(axis=1).all()
    assert np.isnan(made({"output": "y", "normalize": True}, array)).any(axis=1).all()


def test_a_number_without_a_name_has_none() -> None:
    """The record is refused, and others have theirs."""
    why = "field field, from output y: the model answered a number that has no name"
    best = np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]], "f4")

    assert faults({"output": "y", "names": ["a", "b"]}, np.array([1, 2, 0], "i8")) == {1: (Code.INTERNAL, why)}
    assert faults({"argmax": "y", "names": ["a", "b"]}, best, None) == {1: (Code.INTERNAL, why)}


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("y[3]", "shape (2, 2) came out, and element 3 is wanted"),
        ({"softmax": "y", "at": 3}, "shape (2, 2) came out, and 4 elements are needed"),
        ({"argmax": "y", "top": 3}, "shape (2, 2) came out, and 3 elements are needed"),
    ],
)
def test_an_open_dimension_may_prove_too_short(entry: Any, why: str) -> None:
    """Then all rows of the run are refused, and the worker goes on."""
    fault = (Code.INTERNAL, f"field field, from output y: {why}")

    assert faults(entry, LOGITS[:2, :2], None) == {0: fault, 1: fault}


@pytest.mark.parametrize("entry", [{"softmax": "y"}, {"argmax": "y"}])
def test_an_empty_dimension_has_no_highest_value(entry: Any) -> None:
    """Numpy would raise."""
    assert list(faults(entry, LOGITS[:, :0], None)) == [0, 1, 2]


def test_an_output_may_prove_to_have_another_shape() -> None:
    """Some files tell wrong shapes of outputs, and data may change them."""
    why = "field field, from output y: y FP32[batch, 2] was expected, and shape (3, 3) came out"

    assert faults("y", LOGITS, 2)[2] == (Code.INTERNAL, why)
    assert list(faults("y", LOGITS, 3, 1)) == [0, 1, 2]


def test_a_mask_must_fit_its_tokens() -> None:
    """A model that drops tokens gives no vector that belongs to a text."""
    why = "field field, from output y: shape (2, 2, 2) came out for a mask of shape (2, 3)"

    assert faults({"mean": "y"}, TOKENS[:, :2], None, 2, mask=MASK)[1] == (Code.INTERNAL, why)
    assert list(faults({"max": "y"}, TOKENS[:, :0], None, 2, mask=MASK[:, :0])) == [0, 1]


# Entries that are refused at start


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("z", "the model has no output z; it gives y FP32[batch, 3]"),
        ({"argmax": "z"}, "the model has no output z; it gives y FP32[batch, 3]"),
        ("z[1]", "the model has no output z; it gives y FP32[batch, 3]"),
        ("y[3]", "y FP32[batch, 3] has no element 3: the first one is 0, the last one 2"),
        ("y[-1]", "y[-1]: an element is given by its number, from 0 on, or by several with commas"),
        ("y[1,]", "y[1,]: an element is given by its number, from 0 on, or by several with commas"),
        ("y[1,1]", "y FP32[batch, 3] has 1 dimensions after the batch, not 2"),
        ({"softmax": "y", "at": 3}, "y FP32[batch, 3] has no element 3: the first one is 0, the last one 2"),
        ({"softmax": "y", "at": -1}, "`at` is a whole number from 0 on"),
        ({"softmax": "y", "at": True}, "`at` is a whole number from 0 on"),
        ({"softmax": "y", "top": 0}, "`top` is a whole number from 1 on"),
        ({"softmax": "y", "top": 4}, "y FP32[batch, 3] has 3 elements, and 4 are wanted"),
        ({"softmax": "y", "at": 1, "top": 1}, "give `at` or `top`, not both"),
        ({"softmax": "y", "names": ["a"]}, "softmax has no option names; it takes at, top"),
        ({"argmax": "y", "names": ["a", "b"]}, "3 names are needed, one for each class, and `names` has 2"),
        (
            {"argmax": "y", "names": {"1": "a", "2": "b", "3": "c"}},
            "3 names are needed, one for each class, and `names` has 3",
        ),
        ({"argmax": "y", "names": {"one": "a"}}, "`names` in a table stand behind whole numbers"),
        ({"output": "y", "names": ["a"]}, "y FP32[batch, 3] has no whole numbers, and names belong to such"),
        ({"mean": "y"}, "mean takes the tokens that attention_mask says, and the model has no such input"),
        ({"cls": "y"}, "y FP32[batch, 3] has no vector for each token, as [batch, tokens, elements] has"),
        ({"output": "y", "normalize": "yes"}, "`normalize` is true or false"),
    ],
)
def test_a_wrong_entry_is_refused_at_start(entry: Any, why: str) -> None:
    """The message names the entry, and what the model gives."""
    assert refusal(entry) == why


@pytest.mark.parametrize("names", [[], ["a", 1, "c"], 3, {}])
def test_names_are_texts(names: Any) -> None:
    """A number or nothing is no name."""
    assert refusal({"argmax": "y", "names": names}).startswith("`names` is a list of texts, the path of a file")


def test_a_file_of_names_must_be_there(tmp_path: Path) -> None:
    """The message says why it cannot be read."""
    why = refusal({"argmax": "y", "names": str(tmp_path / "none.txt")})

    assert why.startswith("`names`: the file cannot be read: [Errno 2]")


@pytest.mark.parametrize("entry", [3, ["y"], {}, {"names": ["a"]}, {"argmax": "y", "softmax": "y"}, {"argmax": 3}])
def test_an_entry_has_one_operation(entry: Any) -> None:
    """Two of them would have no order."""
    operations = ", ".join(OPERATIONS)

    assert refusal(entry) == f"name an output, or give a table with one of {operations} and an output's name"


def test_operations_need_their_kinds_of_numbers() -> None:
    """Texts have no highest one, and whole numbers no softmax."""
    texts, numbers = np.array([["a", "b"]], object), np.array([[1, 2]], "i8")

    assert refusal({"argmax": "y"}, texts) == "y BYTES[batch, 2] has texts, and numbers are needed"
    for entry in ({"softmax": "y"}, {"sigmoid": "y"}, {"output": "y", "normalize": True}):
        assert refusal(entry, numbers).endswith("has no floating-point numbers, which are needed")
