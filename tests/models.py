"""Small ONNX models for everybody's tests, built on the spot; nothing here is a fixture file.

Each function returns the serialized model as bytes and says what makes it special. `save` writes one to a folder.
The batch axis is dynamic and called `batch` unless the function says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

# Open Inference Protocol datatypes → ONNX element types.
ONNX_TYPES = {
    "BOOL": TensorProto.BOOL,
    "UINT8": TensorProto.UINT8,
    "UINT16": TensorProto.UINT16,
    "UINT32": TensorProto.UINT32,
    "UINT64": TensorProto.UINT64,
    "INT8": TensorProto.INT8,
    "INT16": TensorProto.INT16,
    "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64,
    "FP16": TensorProto.FLOAT16,
    "FP32": TensorProto.FLOAT,
    "FP64": TensorProto.DOUBLE,
    "BYTES": TensorProto.STRING,
    "BF16": TensorProto.BFLOAT16,
}

Dims = Sequence[int | str | None]
node = helper.make_node
NONE_FIXED: Mapping[str, int] = {}


def save(model: bytes, folder: Path, name: str = "model") -> Path:
    """The path of `folder/name.onnx`, written."""
    path = folder / f"{name}.onnx"
    path.write_bytes(model)
    return path


def mlp(inputs: int = 4, hidden: Sequence[int] = (8,), outputs: int = 3, seed: int = 0) -> bytes:
    """x FP32 (batch, inputs) → y FP32 (batch, outputs): dense layers with ReLU between. Same seed, same weights."""
    rng = np.random.default_rng(seed)
    sizes = [inputs, *hidden, outputs]
    nodes, weights, last = [], [], "x"
    for at, (rows, columns) in enumerate(pairwise(sizes)):
        values = (rng.standard_normal((rows, columns)) / rows**0.5).astype(np.float32)
        weights += [numpy_helper.from_array(values, f"w{at}"), _constant(f"b{at}", np.zeros(columns, np.float32))]
        final = at == len(sizes) - 2
        nodes.append(node("Gemm", [last, f"w{at}", f"b{at}"], ["y" if final else f"h{at}"]))
        if not final:
            nodes.append(node("Relu", [f"h{at}"], [f"r{at}"]))
        last = f"r{at}"
    return _model(nodes, [_value("x", "FP32", inputs)], [_value("y", "FP32", outputs)], weights)


def tied_mlp(inputs: int = 4, width: int = 8, layers: int = 4, outputs: int = 3, seed: int = 0) -> bytes:
    """The same whose hidden layers share one weight: as dear as anybody wants it to be, in a small file."""
    rng = np.random.default_rng(seed)
    names = {"w0": (inputs, width), "shared": (width, width), "last": (width, outputs)}
    weights = [
        numpy_helper.from_array((rng.standard_normal(shape) / shape[0] ** 0.5).astype(np.float32), name)
        for name, shape in names.items()
    ]
    nodes, last = [], "x"
    for at in range(layers):
        nodes.append(node("MatMul", [last, "shared" if at else "w0"], [f"h{at}"]))
        nodes.append(node("Relu", [f"h{at}"], [f"r{at}"]))
        last = f"r{at}"
    nodes.append(node("MatMul", [last, "last"], ["y"]))
    return _model(nodes, [_value("x", "FP32", inputs)], [_value("y", "FP32", outputs)], weights)


def identity(datatype: str = "FP32", dims: Dims = (4,)) -> bytes:
    """x (batch, *dims) → y, the same elements, of any datatype."""
    return identities({"": datatype}, dims)


def identities(datatypes: dict[str, str], dims: Dims = (2,), fixed: Mapping[str, int] = NONE_FIXED) -> bytes:
    """One input `x<suffix>` and one output `y<suffix>` per entry {suffix: datatype}, each (batch, *dims), unchanged.

    `fixed` are the numbers of rows for which some of them are exported.
    """
    shapes = {suffix: [fixed.get(suffix, "batch"), *dims] for suffix in datatypes}
    return _model(
        [node("Identity", [f"x{suffix}"], [f"y{suffix}"]) for suffix in datatypes],
        [_fixed_value(f"x{suffix}", datatype, shapes[suffix]) for suffix, datatype in datatypes.items()],
        [_fixed_value(f"y{suffix}", datatype, shapes[suffix]) for suffix, datatype in datatypes.items()],
    )


def every_datatype() -> bytes:
    """Inputs xBOOL … xBYTES and outputs yBOOL … yBYTES of shape (batch, 2), one per datatype that the worker takes."""
    return identities({datatype: datatype for datatype in ONNX_TYPES if datatype != "BF16"})


def two_in_two_out() -> bytes:
    """a FP32 (batch, 3), b INT64 (batch, 2) → total FP32 (batch, 1), the sum of both, and doubled INT64 (batch, 2)."""
    return _model(
        [
            node("Cast", ["b"], ["b32"], to=TensorProto.FLOAT),
            node("Concat", ["a", "b32"], ["ab"], axis=1),
            node("ReduceSum", ["ab", "axis"], ["total"], keepdims=1),
            node("Mul", ["b", "two"], ["doubled"]),
        ],
        [_value("a", "FP32", 3), _value("b", "INT64", 2)],
        [_value("total", "FP32", 1), _value("doubled", "INT64", 2)],
        [_whole("axis", [1]), _whole("two", 2)],
    )


def bag_of_words(width: int = 2, symbols: tuple[str | None, str | None] = ("sequence", "sequence")) -> bytes:
    """ids, mask INT64 (batch, sequence) → words FP32 (batch, sequence, width), row `id` of a table times the mask, and
    bag FP32 (batch, width), their sum. `symbols` name the second axis of ids and of mask.
    """
    table = np.arange(10 * width, dtype=np.float32).reshape(10, width)
    return _model(
        [
            node("Gather", ["table", "ids"], ["found"]),
            node("Cast", ["mask"], ["mask32"], to=TensorProto.FLOAT),
            node("Unsqueeze", ["mask32", "last"], ["masks"]),
            node("Mul", ["found", "masks"], ["words"]),
            node("ReduceSum", ["words", "first"], ["bag"], keepdims=0),
        ],
        [_value("ids", "INT64", symbols[0]), _value("mask", "INT64", symbols[1])],
        [_value("words", "FP32", None, width), _value("bag", "FP32", width)],
        [_constant("table", table), _whole("first", [1]), _whole("last", [2])],
    )


def up_to_two() -> bytes:
    """x FP32 (batch, n) → y FP32 (batch, n), for an n of at most 2: of more the run fails."""
    return _model(
        [
            node("Shape", ["x"], ["n"], start=1, end=2),
            node("Sub", ["n", "one"], ["last"]),
            node("Gather", ["table", "last"], ["found"]),
            node("Add", ["x", "found"], ["y"]),
        ],
        [_value("x", "FP32", "n")],
        [_value("y", "FP32", "n")],
        [_whole("one", [1]), _constant("table", np.zeros(2, np.float32))],
    )


def every_second() -> bytes:
    """x FP32 (batch, n) → y FP32 (batch, ⌈n / 2⌉): an output that follows an axis at another length."""
    return _model(
        [node("Slice", ["x", "from", "to", "axis", "step"], ["y"])],
        [_value("x", "FP32", "n")],
        [_value("y", "FP32", "half")],
        [_whole("from", [0]), _constant("to", np.array([2**31], np.int64)), _whole("axis", [1]), _whole("step", [2])],
    )


def rounded_up(multiple: int = 16) -> bytes:
    """x FP32 (batch, n) → y FP32 (batch, n rounded up to a multiple of that): an output now and then as long."""
    return _model(
        [
            node("Shape", ["x"], ["n"], start=1, end=2),
            node("Neg", ["n"], ["minus"]),
            node("Mod", ["minus", "multiple"], ["lacking"]),
            node("Concat", ["before", "lacking"], ["pads"], axis=0),
            node("Pad", ["x", "pads"], ["y"]),
        ],
        [_value("x", "FP32", "n")],
        [_value("y", "FP32", None)],
        [_constant("multiple", np.array([multiple], np.int64)), _constant("before", np.zeros(3, np.int64))],
    )


def groups(of: int = 4, count: int = -1) -> bytes:
    """x FP32 (batch, n) → y FP32 (batch, of), the sum of the groups: n must be a multiple, or `count` of them."""
    return _model(
        [node("Reshape", ["x", "shape"], ["grouped"]), node("ReduceSum", ["grouped", "second"], ["y"], keepdims=0)],
        [_value("x", "FP32", "n")],
        [_value("y", "FP32", of)],
        [_constant("shape", np.array([0, count, of], np.int64)), _whole("second", [1])],
    )


def squeezed() -> bytes:
    """x FP32 (batch, n) → y FP32 without the dimensions that are 1: another number of them where n is."""
    return _model([node("Squeeze", ["x"], ["y"])], [_value("x", "FP32", "n")], [_unranked("y", "FP32")])


def row_sums(width: int = 4) -> bytes:
    """x FP32 (batch, width) → sum FP32 (batch): one scalar a row."""
    return _model(
        [node("ReduceSum", ["x", "axis"], ["sum"], keepdims=0)],
        [_value("x", "FP32", width)],
        [_value("sum", "FP32")],
        [_whole("axis", [1])],
    )


def scalars_per_row(width: int = 4) -> bytes:
    """x FP32 (batch, width) → sum FP32 (batch), best INT64 (batch), where its largest is, and label BYTES (batch)."""
    return _model(
        [
            node("ReduceSum", ["x", "axis"], ["sum"], keepdims=0),
            node("ArgMax", ["x"], ["best"], axis=1, keepdims=0),
            node("Gather", ["names", "best"], ["label"]),
        ],
        [_value("x", "FP32", width)],
        [_value("sum", "FP32"), _value("best", "INT64"), _value("label", "BYTES")],
        [_whole("axis", [1]), _constant("names", np.array([f"c{n}" for n in range(width)], object))],
    )


def text_scores(words: int = 100, *, named: bool = True, optional_axis: str = "length") -> bytes:
    """input_ids, attention_mask, token_type_ids INT64 (batch, length) → scores FP32 (batch, 4): the sum over the words.

    Row `id` of a table, and 100 for each token of type 1, where the mask is 1; an id that the table has not fails the
    batch. Without `named` the file gives the axes no names; else those of mask and types have `optional_axis`.
    """
    table = np.random.default_rng(3).standard_normal((words, 4)).astype(np.float32)
    longs = ["length", optional_axis, optional_axis] if named else [None] * 3
    names = ["input_ids", "attention_mask", "token_type_ids"]
    return _model(
        [
            node("Gather", ["table", "input_ids"], ["rows"]),
            node("Cast", ["token_type_ids"], ["types"], to=TensorProto.FLOAT),
            node("Mul", ["types", "hundred"], ["offset"]),
            node("Unsqueeze", ["offset", "last"], ["offsets"]),
            node("Add", ["rows", "offsets"], ["moved"]),
            node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
            node("Unsqueeze", ["mask", "last"], ["masks"]),
            node("Mul", ["moved", "masks"], ["kept"]),
            node("ReduceSum", ["kept", "words"], ["scores"], keepdims=0),
        ],
        [_value(name, "INT64", long) for name, long in zip(names, longs, strict=True)],
        [_value("scores", "FP32", 4)],
        [
            _constant("table", table),
            _constant("hundred", np.array(100, np.float32)),
            _whole("last", [2]),
            _whole("words", [1]),
        ],
    )


def text_with_lone_axis() -> bytes:
    """ids INT64 (batch, length), weights FP32 (batch, others, 2) → y FP32 (batch): an axis that no other input has."""
    return _model(
        [
            node("Cast", ["ids"], ["ids32"], to=TensorProto.FLOAT),
            node("ReduceSum", ["ids32", "one"], ["total"], keepdims=0),
            node("ReduceSum", ["weights", "rest"], ["weight"], keepdims=0),
            node("Mul", ["total", "weight"], ["y"]),
        ],
        [_value("ids", "INT64", "length"), _value("weights", "FP32", "others", 2)],
        [_value("y", "FP32")],
        [_whole("one", [1]), _whole("rest", [1, 2])],
    )


def for_rows(rows: int, model: bytes) -> bytes:
    """The model as it is exported for a fixed number of rows."""
    held = onnx.load_from_string(for_inputs_of(rows, model))
    for value in held.graph.output:
        value.type.tensor_type.shape.dim[0].dim_value = rows
    return bytes(held.SerializeToString())


def for_inputs_of(rows: int, model: bytes) -> bytes:
    """The model with a fixed number of rows for its inputs; of its outputs it says what it did."""
    held = onnx.load_from_string(model)
    for value in held.graph.input:
        value.type.tensor_type.shape.dim[0].dim_value = rows
    return bytes(held.SerializeToString())


def hungry(width: int = 4, floats: int = 8 << 20) -> bytes:
    """x FP32 (batch, width) → y FP32 (batch, 1), the sum of x, for which each row takes so many floats of memory."""
    return _model(
        [
            node("ReduceSum", ["x", "one"], ["sum"], keepdims=1),
            node("Expand", ["sum", "shape"], ["wide"]),
            node("Slice", ["wide", "zero", "one", "one"], ["y"]),
        ],
        [_value("x", "FP32", width)],
        [_value("y", "FP32", 1)],
        [_whole("zero", [0]), _whole("one", [1]), _constant("shape", np.array([1, floats], np.int64))],
    )


def lookup(rows: int = 10, width: int = 2) -> bytes:
    """id INT64 (batch, 1) → y FP32 (batch, 1, width), row `id` of a table. An id out of range fails the whole batch."""
    table = np.arange(rows * width, dtype=np.float32).reshape(rows, width)
    return _model(
        [node("Gather", ["table", "id"], ["y"])],
        [_value("id", "INT64", 1)],
        [_value("y", "FP32", 1, width)],
        [_constant("table", table)],
    )


def shares() -> bytes:
    """x FP32 (batch, 4) → y = x / Σx, as a mean under a mask is: NaN for a row of zeros, and nothing fails."""
    return _model(
        [node("ReduceSum", ["x", "axes"], ["whole"], keepdims=1), node("Div", ["x", "whole"], ["y"])],
        [_value("x", "FP32", 4)],
        [_value("y", "FP32", 4)],
        [_constant("axes", np.array([1]))],
    )


def with_loss() -> bytes:
    """x FP32 (batch, 4) → y = x, and loss FP32, one number for the whole batch."""
    return _model(
        [node("Identity", ["x"], ["y"]), node("ReduceMean", ["x"], ["loss"], axes=[0, 1], keepdims=0)],
        [_value("x", "FP32", 4)],
        [_value("y", "FP32", 4), helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])],
    )


def divided_by_rows() -> bytes:
    """x FP32 (batch, 4) → y = x by the number of rows: each row's answer, and the same for all copies of a row."""
    return _model(
        [
            node("Shape", ["x"], ["shape"]),
            node("Slice", ["shape", "first", "second"], ["rows"]),
            node("Cast", ["rows"], ["count"], to=TensorProto.FLOAT),
            node("Div", ["x", "count"], ["y"]),
        ],
        [_value("x", "FP32", 4)],
        [_value("y", "FP32", 4)],
        [_constant("first", np.array([0])), _constant("second", np.array([1]))],
    )


def sum_of_logarithms(*, less_the_mean: bool) -> bytes:
    """x FP32 (batch, 32) → y FP32 (batch, 1) = Σ log x: NaN where one is negative. `less_the_mean`: of all rows."""
    mean = [node("ReduceMean", ["sum"], ["mean"], axes=[0]), node("Sub", ["sum", "mean"], ["y"])]
    return _model(
        [
            node("Log", ["x"], ["log"]),
            node("ReduceSum", ["log", "axes"], ["sum"]),
            *(mean if less_the_mean else [node("Identity", ["sum"], ["y"])]),
        ],
        [_value("x", "FP32", 32)],
        [_value("y", "FP32", 1)],
        [_constant("axes", np.array([1]))],
    )


def square_root(width: int = 4) -> bytes:
    """x FP32 (batch, width) → y = √x: NaN where x is negative, and nothing fails."""
    return _model([node("Sqrt", ["x"], ["y"])], [_value("x", "FP32", width)], [_value("y", "FP32", width)])


def parse_number() -> bytes:
    """text BYTES (batch, 1) → y FP32 (batch, 1): the number that the text spells; other text fails the whole batch."""
    return _model(
        [node("Cast", ["text"], ["y"], to=TensorProto.FLOAT)], [_value("text", "BYTES", 1)], [_value("y", "FP32", 1)]
    )


def categories(*others: str) -> bytes:
    """city BYTES (batch, 1) → which FP32 (batch, 1, 2): of Rome and Oslo; another city fails the whole batch.

    Of `others`, inputs FP32 (batch, 1), each is an output as it comes, named `same` and its name.
    """
    encoder = node("OneHotEncoder", ["city"], ["which"], domain="ai.onnx.ml", cats_strings=["Rome", "Oslo"], zeros=0)
    return _model(
        [encoder, *[node("Identity", [name], [f"same{name}"]) for name in others]],
        [_value("city", "BYTES", 1), *[_value(name, "FP32", 1) for name in others]],
        [_value("which", "FP32", 1, 2), *[_value(f"same{name}", "FP32", 1) for name in others]],
    )


def postcodes() -> bytes:
    """code INT64 (batch, 1), city BYTES (batch, 1) → area FP32 (batch, 1, 4), one-hot: of 10115, 20095; of Rome, Oslo.

    Any other value fails the whole batch, so it runs on neither zeros nor ones.
    """
    attributes: dict[str, Any] = {"domain": "ai.onnx.ml", "zeros": 0}
    return _model(
        [
            node("OneHotEncoder", ["code"], ["which"], cats_int64s=[10115, 20095], **attributes),
            node("OneHotEncoder", ["city"], ["where"], cats_strings=["Rome", "Oslo"], **attributes),
            node("Concat", ["which", "where"], ["area"], axis=2),
        ],
        [_value("code", "INT64", 1), _value("city", "BYTES", 1)],
        [_value("area", "FP32", 1, 4)],
    )


def postcodes_of_all() -> bytes:
    """The same, but for area: less what is the most in each column, whoever's rows these are."""
    held = onnx.load_from_string(postcodes())
    held.graph.node[-1].output[0] = "areas"
    held.graph.node.append(node("ReduceMax", ["areas"], ["most"], axes=[0], keepdims=1))
    held.graph.node.append(node("Sub", ["areas", "most"], ["area"]))
    return bytes(held.SerializeToString())


def above(least: int = 10, words: int = 20) -> bytes:
    """ids, mask INT64 (batch, length) → y FP32 (batch, length): ids as they are, from `least` on to `words`.

    Another id fails the whole batch, also where the mask is 0.
    """
    return _model(
        [
            node("Sub", ["ids", "least"], ["at"]),
            node("Mod", ["at", "huge"], ["place"]),  # below 0 it is far outside of the table
            node("Gather", ["table", "place"], ["found"]),
            node("Cast", ["mask"], ["mask32"], to=TensorProto.FLOAT),
            node("Mul", ["found", "mask32"], ["y"]),
        ],
        [_value("ids", "INT64", "length"), _value("mask", "INT64", "length")],
        [_value("y", "FP32", "length")],
        [
            _constant("least", np.array(least, np.int64)),
            _constant("huge", np.array(2**40, np.int64)),
            _constant("table", np.arange(least, words, dtype=np.float32)),
        ],
    )


def lower_case(locale: str) -> bytes:
    """text BYTES (batch) → y BYTES (batch), in lower case by the rules of a locale that the machine must have.

    And once more by those of en_US.UTF-8, which is meant where a node names none, as those of skl2onnx do.
    """
    return _model(
        [
            node("StringNormalizer", ["text"], ["lower"], case_change_action="LOWER", locale=locale),
            node("StringNormalizer", ["lower"], ["y"], case_change_action="LOWER"),
        ],
        [_value("text", "BYTES")],
        [_value("y", "BYTES")],
    )


def quotient() -> bytes:
    """a, b INT64 (batch, 1) → y INT64 (batch, 1) = a / b: a zero in b fails the whole batch."""
    return _model(
        [node("Div", ["a", "b"], ["y"])], [_value("a", "INT64", 1), _value("b", "INT64", 1)], [_value("y", "INT64", 1)]
    )


def least_divided() -> bytes:
    """x INT64 (batch, 1) → y INT64 (batch, 1) = -2**63 / x. Zero fails the whole batch; -1 kills the process.

    That quotient fits no INT64, and the processor's own division traps: SIGFPE, in ONNX Runtime 1.31 on x86.
    """
    return _model(
        [node("Div", ["least", "x"], ["y"])],
        [_value("x", "INT64", 1)],
        [_value("y", "INT64", 1)],
        [_constant("least", np.array(-(2**63), np.int64))],
    )


def fragile(table: np.ndarray, weights: np.ndarray) -> bytes:
    """x FP32 (batch, 1 + roots) → y FP32 (batch, outputs): row x[0] of the table + √x[1:] · weights.

    `table` is FP32 (rows, outputs), `weights` FP32 (roots, outputs). A row that the table has not fails the whole
    batch; the root of a negative number is NaN, and nothing fails.
    """
    return _model(
        [
            node("Split", ["x", "widths"], ["place", "rest"], axis=1),
            node("Squeeze", ["place", "axis"], ["flat"]),
            node("Cast", ["flat"], ["row"], to=TensorProto.INT64),
            node("Gather", ["table", "row"], ["base"]),
            node("Sqrt", ["rest"], ["roots"]),
            node("MatMul", ["roots", "weights"], ["more"]),
            node("Add", ["base", "more"], ["y"]),
        ],
        [_value("x", "FP32", 1 + len(weights))],
        [_value("y", "FP32", table.shape[1])],
        [
            _constant("widths", np.array([1, len(weights)], np.int64)),
            _whole("axis", [1]),
            _constant("table", table),
            _constant("weights", weights),
        ],
    )


def with_memory(model: bytes, memory: bytes, columns: slice) -> bytes:
    """The model, whose output y FP32 ends in the first one of `memory`, which has a state and sees these columns of x.

    What `memory` is asked is called x, and comes first; its other inputs and outputs stay as they are.
    """
    made, other = onnx.load_from_string(model).graph, onnx.load_from_string(memory).graph
    (seen, *states), (told, *_) = other.input, other.output
    names = {"x": "its_x", told.name: "its_y"}
    for node in made.node:
        node.output[:] = ["own_y" if name == "y" else name for name in node.output]
    for node in other.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    bounds = [_constant(name, np.array([at], np.int64)) for name, at in (("from", columns.start), ("to", columns.stop))]
    y, width = made.output[0], _columns(made.output[0]) + _columns(told)
    return _model(
        [
            *made.node,
            node("Slice", ["x", "from", "to", "columns"], ["its_columns"]),
            node("Cast", ["its_columns"], ["its_x"], to=seen.type.tensor_type.elem_type),
            *other.node,
            node("Cast", ["its_y"], ["its_floats"], to=TensorProto.FLOAT),
            node("Concat", ["own_y", "its_floats"], ["y"], axis=1),
        ],
        [*made.input, *states],
        [_value(y.name, "FP32", width), *other.output[1:]],
        [*made.initializer, *other.initializer, *bounds, _whole("columns", [1])],
    )


def _columns(value: onnx.ValueInfoProto) -> int:
    return int(value.type.tensor_type.shape.dim[1].dim_value)


def sequence_mean() -> bytes:
    """tokens FP32 (batch, length), length dynamic → mean FP32 (batch, 1)."""
    return _model(
        [node("ReduceMean", ["tokens"], ["mean"], axes=[1], keepdims=1)],
        [_value("tokens", "FP32", "length")],
        [_value("mean", "FP32", 1)],
    )


def encoder(
    layers: int = 1, width: int = 16, heads: int = 2, vocabulary: int = 100, longest: int = 512, seed: int = 0
) -> bytes:
    """A transformer: input_ids, attention_mask INT64 (batch, sequence) → embedding FP32 (batch, width), tokens.

    `embedding` is the mean of what the mask admits, `tokens` FP32 (batch, sequence, 4) has something of each token.
    Where the mask is 0 stands padding: it changes nothing elsewhere. A sequence above `longest` fails the whole batch.
    """
    graph = _Graph(np.random.default_rng(seed))
    words = graph.node("Gather", graph.random(vocabulary, width), "input_ids")
    length = graph.node("Shape", "input_ids", start=1, end=2)
    start, axis = graph.constant([0], np.int64), graph.constant([0], np.int64)
    state = graph.node("Add", words, graph.node("Slice", graph.random(longest, width), start, length, axis))
    mask = graph.node("Cast", "attention_mask", to=TensorProto.FLOAT)
    hidden = graph.node("Mul", graph.node("Sub", graph.constant(1), mask), graph.constant(-1e9))
    hidden = graph.node("Unsqueeze", hidden, graph.constant([1, 2], np.int64))  # (batch, 1, 1, sequence)
    for _ in range(layers):
        state = graph.normal(graph.node("Add", state, _attention(graph, state, hidden, width, heads)), width)
        inner = graph.node("Relu", graph.dense(state, width, 4 * width))
        state = graph.normal(graph.node("Add", state, graph.dense(inner, 4 * width, width)), width)
    weights = graph.node("Unsqueeze", mask, graph.constant([2], np.int64))
    total = graph.node("ReduceSum", graph.node("Mul", state, weights), graph.constant([1], np.int64), keepdims=0)
    count = graph.node("ReduceSum", mask, graph.constant([1], np.int64), keepdims=1)
    graph.node("Div", total, graph.node("Max", count, graph.constant(1)), gives="embedding")
    graph.dense(state, width, 4, gives="tokens")
    return _model(
        graph.nodes,
        [_value(name, "INT64", "sequence") for name in ("input_ids", "attention_mask")],
        [_value("embedding", "FP32", width), _value("tokens", "FP32", "sequence", 4)],
        graph.constants,
    )


def _attention(graph: _Graph, state: str, hidden: str, width: int, heads: int) -> str:
    """Self-attention: (batch, sequence, width) → the same; `hidden` is far below 0 where nobody may look."""
    shape = graph.constant([0, 0, heads, width // heads], np.int64)

    def split(*order: int) -> str:
        return graph.node("Transpose", graph.node("Reshape", graph.dense(state, width, width), shape), perm=order)

    query, key, value = split(0, 2, 1, 3), split(0, 2, 3, 1), split(0, 2, 1, 3)
    scores = graph.node("Mul", graph.node("MatMul", query, key), graph.constant((heads / width) ** 0.5))
    looks = graph.node("Softmax", graph.node("Add", scores, hidden), axis=-1)
    seen = graph.node("Transpose", graph.node("MatMul", looks, value), perm=(0, 2, 1, 3))
    return graph.dense(graph.node("Reshape", seen, graph.constant([0, 0, width], np.int64)), width, width)


class _Graph:
    """Nodes and constants with names of their own, in the order in which they are asked for."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[TensorProto] = []
        self._rng = rng

    def node(self, kind: str, *inputs: str, gives: str | None = None, **attributes: Any) -> str:
        """The name of its output: `gives`, or a fresh one."""
        output = gives or f"n{len(self.nodes)}"
        self.nodes.append(node(kind, inputs, [output], **attributes))
        return output

    def constant(self, value: object, dtype: type[np.generic] = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(_constant(name, np.array(value, dtype)))
        return name

    def random(self, *shape: int, scale: float = 1.0) -> str:
        return self.constant(self._rng.standard_normal(shape) * scale)

    def dense(self, of: str, inputs: int, outputs: int, gives: str | None = None) -> str:
        """(…, inputs) → (…, outputs)."""
        product = self.node("MatMul", of, self.random(inputs, outputs, scale=inputs**-0.5))
        return self.node("Add", product, self.random(outputs, scale=0.1), gives=gives)

    def normal(self, of: str, width: int) -> str:
        """Each token with mean 0 and variance 1."""
        ones, zeros = self.constant(np.ones(width)), self.constant(np.zeros(width))
        return self.node("LayerNormalization", of, ones, zeros, axis=-1)


def bag_of_grams() -> bytes:
    """x INT64 (batch, 4) → counts FP32 (batch, 3), how often 1, 2 and 3 are in x; w INT64 (batch, 2) → v, unchanged.

    ONNX Runtime counts on the CPU, on CUDA too.
    """
    count = node(
        "TfIdfVectorizer",
        ["x"],
        ["counts"],
        mode="TF",
        min_gram_length=1,
        max_gram_length=1,
        max_skip_count=0,
        ngram_counts=[0],
        ngram_indexes=[0, 1, 2],
        pool_int64s=[1, 2, 3],
    )
    return _model(
        [count, node("Identity", ["w"], ["v"])],
        [_value("x", "INT64", 4), _value("w", "INT64", 2)],
        [_value("counts", "FP32", 3), _value("v", "INT64", 2)],
    )


def first_columns(width: int = 4) -> bytes:
    """x INT64 (batch, width) → y INT64 (batch, ?): as many columns as the largest number in x says."""
    return _model(
        [
            node("ReduceMax", ["x"], ["most"], keepdims=0),
            node("Reshape", ["most", "one"], ["end"]),
            node("Slice", ["x", "start", "end", "one"], ["y"]),
        ],
        [_value("x", "INT64", width)],
        [_value("y", "INT64", None)],
        [_whole("start", [0]), _whole("one", [1])],
    )


def misdeclared(columns: int | None = 4) -> bytes:
    """x FP32 (batch, columns) → y, its first two columns, of which the file says that they are three; and x itself."""
    return _model(
        [
            node("Sub", ["x", "x"], ["zeros"]),
            node("ReduceMax", ["zeros"], ["zero32"], keepdims=0),
            node("Cast", ["zero32"], ["zero"], to=TensorProto.INT64),
            node("Add", ["zero", "two"], ["end"]),
            node("Slice", ["x", "start", "end", "one"], ["y"]),
            node("Identity", ["x"], ["same"]),
        ],
        [_value("x", "FP32", columns)],
        [_value("y", "FP32", 3), _value("same", "FP32", columns)],
        [_constant(name, np.array([at])) for name, at in {"start": 0, "one": 1, "two": 2}.items()],
    )


def convolution(kernel: int = 40, side: int | None = None) -> bytes:
    """image FP32 (batch, 1, height, width), both `side`, or dynamic and at least `kernel` → y FP32 (batch, 1, ?, ?)."""
    return _model(
        [node("Conv", ["image", "w"], ["y"])],
        [_value("image", "FP32", 1, side or "height", side or "width")],
        [_value("y", "FP32", 1, None, None)],
        [_constant("w", np.ones((1, 1, kernel, kernel), np.float32))],
    )


def fixed_batch(rows: int = 4, width: int = 3) -> bytes:
    """x FP32 (rows, width) → y the same: exported with a fixed batch axis."""
    return _model(
        [node("Identity", ["x"], ["y"])],
        [_fixed_value("x", "FP32", [rows, width])],
        [_fixed_value("y", "FP32", [rows, width])],
    )


def of_unknown_rank() -> bytes:
    """x FP32, of which the file does not say how many dimensions it has → y, the same."""
    return _model([node("Identity", ["x"], ["y"])], [_unranked("x", "FP32")], [_unranked("y", "FP32")])


def without_outputs() -> bytes:
    """x FP32 (batch, 4), of which y is made and given to nobody."""
    return _model([node("Relu", ["x"], ["y"])], [_value("x", "FP32", 4)], [])


def reshaped_to_one_row(width: int = 4) -> bytes:
    """x FP32 (batch, width) → y the same, by way of a shape that holds the number of rows: one."""
    shape = _constant("shape", np.array([1, width], np.int64))
    return _of_one_node(width, node("Reshape", ["x", "shape"], ["y"]), shape)


def without_inputs() -> bytes:
    """y FP32 (1), a constant."""
    return _model([node("Identity", ["one"], ["y"])], [], [_value("y", "FP32")], [_one()])


def _one() -> TensorProto:
    return _constant("one", np.ones(1, np.float32))


def softmax_of_columns(width: int = 4) -> bytes:
    """x FP32 (batch, width) → y: each number's part of what is in its column, whoever's rows these are."""
    return _of_one_node(width, node("Softmax", ["x"], ["y"], axis=0))


def running_sums(width: int = 4) -> bytes:
    """x FP32 (batch, width) → y: each row with all rows before it, as a recurrent model has time on its first axis."""
    return _of_one_node(width, node("CumSum", ["x", "axis"], ["y"]), _whole("axis", 0))


def sorted_rows(width: int = 4, *, largest: int = 1) -> bytes:
    """x FP32 (batch, width) → y: the same rows by their sums, the largest first (0: last), as a ranking gives them."""
    return _model(
        [
            node("ReduceSum", ["x", "second"], ["sums"], keepdims=0),
            node("Shape", ["sums"], ["rows"]),
            node("TopK", ["sums", "rows"], ["sorted", "order"], axis=0, largest=largest),
            node("Gather", ["x", "order"], ["y"]),
        ],
        [_value("x", "FP32", width)],
        [_value("y", "FP32", width)],
        [_whole("second", [1])],
    )


def quantised_together(width: int = 4) -> bytes:
    """x FP32 (batch, width) → y, the same in 256 steps of one size for the whole batch (dynamic quantisation)."""
    return _model(
        [
            node("DynamicQuantizeLinear", ["x"], ["steps", "size", "zero"]),
            node("DequantizeLinear", ["steps", "size", "zero"], ["y"]),
        ],
        [_value("x", "FP32", width)],
        [_value("y", "FP32", width)],
    )


def shifted_ids(width: int = 4) -> bytes:
    """ids INT64 (batch, width) → y, the same less the row before, the last one for the first."""
    return _model(
        [node("Slice", ["ids", "minus_one", "end", "axis"], ["last"]), node("Sub", ["ids", "last"], ["y"])],
        [_value("ids", "INT64", width)],
        [_value("y", "INT64", width)],
        [_constant("minus_one", np.array([-1])), _constant("end", np.array([2**62])), _constant("axis", np.array([0]))],
    )


def noisy(width: int = 4) -> bytes:
    """x FP32 (batch, width) → y, with noise: never the same twice."""
    return _model(
        [node("RandomNormalLike", ["x"], ["noise"]), node("Add", ["x", "noise"], ["y"])],
        [_value("x", "FP32", width)],
        [_value("y", "FP32", width)],
    )


def normalised_in_training() -> bytes:
    """x FP32 (batch, 4, 8) → y, by a BatchNormalization that was exported in training mode."""
    held = onnx.load_from_string(
        _model(
            [node("BatchNormalization", ["x", *"sbmv"], ["y", "mean", "variance"], training_mode=1)],
            [_value("x", "FP32", 4, 8)],
            [_value("y", "FP32", 4, 8)],
            [_constant(name, np.ones(4, np.float32)) for name in "sbmv"],
        )
    )
    return bytes(held.SerializeToString())


def similarities(*, quantised: bool = False) -> bytes:
    """x FP32 (batch, 4) → y FP32 (batch, batch): of each row with all, as CLIP has it; and x itself.

    `quantised`: as whole numbers, from a model that has a scale for all rows inside.
    """
    return _model(
        [
            node("Transpose", ["x"], ["t"], perm=[1, 0]),
            node("MatMul", ["x", "t"], ["products"]),
            node("Cast", ["products"], ["y"], to=TensorProto.INT64 if quantised else TensorProto.FLOAT),
            node("Identity", ["x"], ["same"]),
            *([node("DynamicQuantizeLinear", ["x"], ["unused", "scale", "zero"])] if quantised else ()),
        ],
        [_value("x", "FP32", 4)],
        [_value("same", "FP32", 4), _value("y", "INT64" if quantised else "FP32", None)],
    )


def tokens(axis: str | None = "num_tokens") -> bytes:
    """text BYTES (batch) → tokens BYTES (as many as all texts have): now and then as many as rows."""
    return _model(
        [
            node("StringSplit", ["text"], ["parts", "count"], delimiter=" "),
            node("Reshape", ["parts", "flat"], ["all"]),
            node("Equal", ["all", "empty"], ["is_empty"]),
            node("Not", ["is_empty"], ["is_token"]),
            node("Compress", ["all", "is_token"], ["tokens"], axis=0),
        ],
        [_value("text", "BYTES")],
        [_fixed_value("tokens", "BYTES", [axis])],
        [_constant("flat", np.array([-1])), _constant("empty", np.array([""], object))],
        opset=20,
    )


def counted_out(most: float = 1e9) -> bytes:
    """x FP32 (batch, 1) → y FP32 (?, 1): a row above `most` is left out, and one of -most or less comes twice.

    A batch of both has as many rows as went in.
    """
    return _model(
        [
            node("Concat", ["x", "x"], ["twice"], axis=1),
            node("LessOrEqual", ["twice", "bounds"], ["are_there"]),
            node("Reshape", ["twice", "flat"], ["all"]),
            node("Reshape", ["are_there", "flat"], ["are_kept"]),
            node("Compress", ["all", "are_kept"], ["kept"], axis=0),
            node("Unsqueeze", ["kept", "one"], ["y"]),
        ],
        [_value("x", "FP32", 1)],
        [_fixed_value("y", "FP32", [None, 1])],
        [
            _constant("bounds", np.array([most, -most], np.float32)),
            _constant("flat", np.array([-1])),
            _constant("one", np.array([1])),
        ],
    )


# An object is where the fifth number of a row is larger than this.
FOUND = 1e6


def detector(gives: str = "each", axis: str | None = "found") -> bytes:
    """x FP32 (batch, 5) → y, by NonMaxSuppression: rows with an object (FOUND) as they are.

    `gives` them "each" in its own row of zeros (batch, 5); "first": in the first row alone, as an export does that was
    traced with one image; "found": all of them and nothing else, (axis, 5).
    """
    scattered = [
        node("Shape", ["x"], ["shape"]),
        node("ConstantOfShape", ["shape"], ["zeros"]),
        node("Slice", ["found", "zero", "one", "one"], ["rows"]),
        node("ScatterND", ["zeros", "rows", "objects"], ["y"]),
    ]
    return _model(
        [
            node("Slice", ["x", "zero", "one", "zero"] if gives == "first" else ["x", "zero", "all", "zero"], ["seen"]),
            node("Reshape", ["seen", "each"], ["images"]),
            node("Slice", ["images", "zero", "four", "two"], ["boxes"]),
            node("Slice", ["images", "four", "five", "two"], ["scores"]),
            node("NonMaxSuppression", ["boxes", "scores", "one", "half", "least"], ["found"]),
            node("Gather", ["found", "first"], ["images_found"], axis=1),
            node("Gather", ["x", "images_found"], ["y" if gives == "found" else "objects"], axis=0),
            *(() if gives == "found" else scattered),
        ],
        [_value("x", "FP32", 5)],
        [_fixed_value("y", "FP32", [axis if gives == "found" else "batch", 5])],
        [
            *(_constant(name, np.array([at])) for name, at in {"zero": 0, "one": 1, "two": 2, "four": 4}.items()),
            _constant("all", np.array([2**31])),
            _constant("five", np.array([5])),
            _constant("first", np.array(0)),
            _constant("each", np.array([-1, 1, 5])),
            _constant("half", np.array([0.5], np.float32)),
            _constant("least", np.array([FOUND], np.float32)),
        ],
    )


def detector_of_one_class() -> bytes:
    """The detector that gives each object in its own row, with labels INT64 (batch, 1), which are all 0."""
    model = onnx.load_from_string(detector())
    model.graph.node.extend(
        [
            node("Slice", ["x", "zero", "one", "one"], ["of_one_class"]),
            node("ArgMax", ["of_one_class"], ["label"], axis=1),
        ]
    )
    model.graph.output.append(_value("label", "INT64", 1))
    return bytes(model.SerializeToString())


def scattered_back(axis: str = "rows") -> bytes:
    """x FP32 (batch, 4) → y FP32 (axis, 4): what is above 0 found by NonZero, and put into rows of zeros."""
    return _model(
        [
            node("Relu", ["x"], ["positive"]),
            node("NonZero", ["positive"], ["across"]),
            node("Transpose", ["across"], ["places"], perm=[1, 0]),
            node("GatherND", ["x", "places"], ["values"]),
            node("Sub", ["x", "x"], ["zeros"]),
            node("ScatterND", ["zeros", "places", "values"], ["y"]),
        ],
        [_value("x", "FP32", 4)],
        [_fixed_value("y", "FP32", [axis, 4])],
    )


def exponentials(width: int = 64) -> bytes:
    """x FP32 (batch, width) → y = exp(x), which is infinite from 89 on."""
    return _of_one_node(width, node("Exp", ["x"], ["y"]))


def _of_one_node(width: int, node: onnx.NodeProto, *constants: TensorProto) -> bytes:
    return _model([node], [_value("x", "FP32", width)], [_value("y", "FP32", width)], constants)


def with_empty_past() -> bytes:
    """x FP32 (batch, 2) and past FP32 (batch, 0) → y FP32 (batch, 2): both side by side, so x."""
    return _model(
        [node("Concat", ["past", "x"], ["y"], axis=1)],
        [_value("x", "FP32", 2), _value("past", "FP32", 0)],
        [_value("y", "FP32", 2)],
    )


def scaled(scale: Dims = (), *, rows: int | str = "batch", weight: float = 1.0) -> bytes:
    """x FP32 (rows, 2), scale FP32 of those dimensions → y FP32 (rows, 2) = x · scale · weight."""
    return _model(
        [node("Mul", ["x", "scale"], ["h"]), node("Mul", ["h", "weight"], ["y"])],
        [_fixed_value("x", "FP32", [rows, 2]), _fixed_value("scale", "FP32", list(scale))],
        [_fixed_value("y", "FP32", [rows, 2])],
        [_constant("weight", np.array([weight], np.float32))],
    )


def class_map() -> bytes:
    """x FP32 (batch, 2) → y, a sequence of maps {class: |x|}: what scikit-learn exports give with `zipmap` on."""
    maps = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    return _model(
        [
            node("Abs", ["x"], ["scores"]),
            node("ZipMap", ["scores"], ["y"], domain="ai.onnx.ml", classlabels_int64s=[0, 1]),
        ],
        [_value("x", "FP32", 2)],
        [helper.make_value_info("y", helper.make_sequence_type_proto(maps))],
    )


def spinner(size: int = 64) -> bytes:
    """turns INT64 (batch, 1) → y FP32 (batch, 1) = turns: a run multiplies size × size matrices max(turns) times.

    So a request says how slow it is (`kafka/spins.py` has a turn's time), and one of 10**12 turns hangs the run.
    """
    return _model(
        [
            node("ReduceMax", ["turns"], ["most"], keepdims=0),
            node("Loop", ["most", "go", "square"], ["state"], body=_turn(size)),
            # The loop's result must reach an output, or it is optimised away; the square is idempotent and finite.
            node("ReduceMax", ["state"], ["peak"], keepdims=0),
            node("Mul", ["peak", "zero"], ["nothing"]),
            node("Cast", ["turns"], ["turns32"], to=TensorProto.FLOAT),
            node("Add", ["turns32", "nothing"], ["y"]),
        ],
        [_value("turns", "INT64", 1)],
        [_value("y", "FP32", 1)],
        [
            _constant("go", np.array(True)),
            _constant("zero", np.array(0, np.float32)),
            _constant("square", np.full((size, size), 1 / size, np.float32)),
        ],
    )


def slow_lookup(turns: int) -> bytes:
    """id INT64 (batch, 1) → y FP32 (batch, 1, 1) = id after so many turns as of the spinner; above 9, the run fails."""
    return _model(
        [
            # The loop hangs on the input, or it would be computed once and for all when the model is loaded.
            node("ReduceMax", ["id"], ["most"], keepdims=0),
            node("Mul", ["most", "none"], ["nothing"]),
            node("Add", ["turns", "nothing"], ["count"]),
            node("Loop", ["count", "go", "square"], ["state"], body=_turn(64)),
            node("ReduceMax", ["state"], ["peak"], keepdims=0),
            node("Cast", ["peak"], ["whole"], to=TensorProto.INT64),
            node("Mul", ["whole", "none"], ["zero"]),
            node("Add", ["id", "zero"], ["late"]),
            node("Gather", ["table", "late"], ["y"]),
        ],
        [_value("id", "INT64", 1)],
        [_value("y", "FP32", 1, 1)],
        [
            _whole("none", 0),
            _constant("turns", np.array(turns, np.int64)),
            _constant("go", np.array(True)),
            _constant("square", np.full((64, 64), 1 / 64, np.float32)),
            _constant("table", np.arange(10, dtype=np.float32).reshape(10, 1)),
        ],
    )


def _turn(size: int) -> onnx.GraphProto:
    """The body of a loop over `state` that does nothing but take time: a product of size × size matrices each turn."""
    return helper.make_graph(
        [node("Identity", ["keep_in"], ["keep_out"]), node("MatMul", ["state_in", "square"], ["state_out"])],
        "turn",
        [
            helper.make_tensor_value_info("at", TensorProto.INT64, []),
            helper.make_tensor_value_info("keep_in", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state_in", TensorProto.FLOAT, [size, size]),
        ],
        [
            helper.make_tensor_value_info("keep_out", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state_out", TensorProto.FLOAT, [size, size]),
        ],
    )


def running_mean() -> bytes:
    """x, sum_in FP64 (batch, 1), count_in INT64 (batch, 1) → mean, sum_out, count_out: of all x that went in."""
    return _model(
        [
            node("Add", ["sum_in", "x"], ["sum_out"]),
            node("Add", ["count_in", "one"], ["count_out"]),
            node("Cast", ["count_out"], ["count"], to=TensorProto.DOUBLE),
            node("Div", ["sum_out", "count"], ["mean"]),
        ],
        [_value("x", "FP64", 1), _value("sum_in", "FP64", 1), _value("count_in", "INT64", 1)],
        [_value("mean", "FP64", 1), _value("sum_out", "FP64", 1), _value("count_out", "INT64", 1)],
        [_constant("one", np.array([[1]], np.int64))],
    )


def running_square() -> bytes:
    """x, s_in FP32 (batch, 1) → y, s_out: the square of what was kept, and x. A large state becomes infinity."""
    return _model(
        [
            node("Mul", ["s_in", "s_in"], ["square"]),
            node("Add", ["square", "x"], ["s_out"]),
            node("Identity", ["s_out"], ["y"]),
        ],
        [_value("x", "FP32", 1), _value("s_in", "FP32", 1)],
        [_value("y", "FP32", 1), _value("s_out", "FP32", 1)],
    )


def gru(inputs: int = 4, hidden: int = 16, outputs: int = 3, seed: int = 0, *, resets_after: int = 0) -> bytes:
    """x FP32 (batch, inputs), h_in FP32 (batch, hidden) → y FP32 (batch, outputs), h_out: one step of a GRU.

    `resets_after`: 1 for the reset behind the product with the state, as PyTorch has it; ONNX Runtime knows no other
    on CUDA.
    """
    kind: dict[str, Any] = {"hidden_size": hidden, "linear_before_reset": resets_after}
    rng = np.random.default_rng(seed)

    def weights(name: str, *shape: int) -> TensorProto:
        return _constant(name, (rng.standard_normal(shape) / shape[-1] ** 0.5).astype(np.float32))

    return _model(
        [
            node("Unsqueeze", ["x", "first"], ["steps"]),
            node("Unsqueeze", ["h_in", "first"], ["before"]),
            node("GRU", ["steps", "w", "r", "b", "", "before"], ["", "after"], **kind),
            node("Squeeze", ["after", "first"], ["h_out"]),
            node("MatMul", ["h_out", "head"], ["y"]),
        ],
        [_value("x", "FP32", inputs), _value("h_in", "FP32", hidden)],
        [_value("y", "FP32", outputs), _value("h_out", "FP32", hidden)],
        [
            _whole("first", [0]),
            weights("w", 1, 3 * hidden, inputs),
            weights("r", 1, 3 * hidden, hidden),
            weights("b", 1, 6 * hidden),
            weights("head", hidden, outputs),
        ],
    )


def as_ort(model: bytes, folder: Path) -> bytes:
    """The model in ONNX Runtime's own format."""
    path = folder / "converted.ort"
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(path)
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return path.read_bytes()


def with_external_data(folder: Path, name: str = "external") -> Path:
    """An MLP written to `folder/name.onnx` with its weights in `folder/name.bin` beside it."""
    path = folder / f"{name}.onnx"
    model = onnx.load_from_string(mlp(inputs=64, hidden=(64,)))
    onnx.save(model, path, save_as_external_data=True, location=f"{name}.bin", size_threshold=0)
    return path


def _model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    constants: Sequence[TensorProto] = (),
    opset: int = 17,
) -> bytes:
    graph = helper.make_graph(nodes, "test", inputs, outputs, constants)
    # Opset 17 and IR 8 (2022): what every ONNX Runtime we allow can read.
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 3)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


def _value(name: str, datatype: str, *dims: int | str | None) -> onnx.ValueInfoProto:
    return _fixed_value(name, datatype, ["batch", *dims])


def _fixed_value(name: str, datatype: str, shape: Sequence[int | str | None]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, ONNX_TYPES[datatype], shape)


def _unranked(name: str, datatype: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, ONNX_TYPES[datatype], None)


def _constant(name: str, value: np.ndarray) -> TensorProto:
    return numpy_helper.from_array(value, name)


def _whole(name: str, numbers: int | Sequence[int]) -> TensorProto:
    return _constant(name, np.array(numbers, np.int64))
