"""Small ONNX models for all tests, built when needed; none is a fixture file.

Each function returns the serialized model as bytes and says what makes it special. `save` writes one to a folder. The
batch axis is dynamic and called `batch` unless the function says otherwise. Graphs are written in ONNX's own text form
(`onnx.parser`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper, parser

# Open Inference Protocol datatypes → ONNX element types.
_WHOLE = ("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64")
_OTHERS = {"FP16": "float16", "FP32": "float", "FP64": "double", "BYTES": "string", "BF16": "bfloat16"}
ONNX_TYPES = {name: name.lower() for name in _WHOLE} | _OTHERS
FLOAT, INT64, DOUBLE = TensorProto.FLOAT, TensorProto.INT64, TensorProto.DOUBLE

Dims = Sequence[int | str | None]
NONE: Mapping[str, Any] = {}


def save(model: bytes, folder: Path, name: str = "model") -> Path:
    """Write the model to `folder/name.onnx` and return the path."""
    path = folder / f"{name}.onnx"
    path.write_bytes(model)
    return path


def model(
    shown: str,
    text: str = "",
    constants: Mapping[str, object] = NONE,
    nodes: Iterable[onnx.NodeProto] = (),
    tensors: Iterable[TensorProto] = (),
    opset: int = 17,
) -> bytes:
    """A model of nodes given as text and as `nodes`. `shown` are "inputs => outputs".

    `constants` are numbers, lists or arrays: whole numbers become INT64, others FP32.
    """
    inputs, outputs = shown.split("=>")
    # Opset 17 and IR 8 (2022): what every ONNX Runtime we allow can read.
    head = f'<ir_version: 8, opset_import: ["": {opset}, "ai.onnx.ml": 3]>'
    held = parser.parse_model(f"{head} test ({inputs}) => ({outputs}) {{{text}}}")
    held.graph.node.extend(nodes)
    held.graph.initializer.extend([*tensors, *(_tensor(name, value) for name, value in constants.items())])
    return bytes(held.SerializeToString())


def _tensor(name: str, value: object) -> TensorProto:
    array = np.asarray(value)
    wanted = {"f": np.float32, "U": object}.get(array.dtype.kind, array.dtype)
    return numpy_helper.from_array(array.astype(wanted), name)


def _nodes(text: str) -> list[onnx.NodeProto]:
    return list(parser.parse_graph(f"part () => () {{{text}}}").node)


def mlp(inputs: int = 4, hidden: Sequence[int] = (8,), outputs: int = 3, seed: int = 0) -> bytes:
    """x FP32 (batch, inputs) → y FP32 (batch, outputs): dense layers with ReLU between. Equal seeds, equal weights."""
    rng = np.random.default_rng(seed)
    sizes = [inputs, *hidden, outputs]
    text, last, constants = "", "x", {}
    for at, (rows, columns) in enumerate(pairwise(sizes)):
        constants[f"w{at}"] = rng.standard_normal((rows, columns)) / rows**0.5
        constants[f"b{at}"] = np.zeros(columns)
        if at < len(hidden):
            text += f"h{at} = Gemm({last}, w{at}, b{at}) r{at} = Relu(h{at})\n"
            last = f"r{at}"
        else:
            text += f"y = Gemm({last}, w{at}, b{at})"
    return model(f"float[batch, {inputs}] x => float[batch, {outputs}] y", text, constants)


def tied_mlp(inputs: int = 4, width: int = 8, layers: int = 4, outputs: int = 3) -> bytes:
    """An MLP whose hidden layers share one weight: as slow as a test wants, in a small file."""
    rng = np.random.default_rng(0)
    shapes = {"w0": (inputs, width), "shared": (width, width), "last": (width, outputs)}
    weights = {name: rng.standard_normal(shape) / shape[0] ** 0.5 for name, shape in shapes.items()}
    text, last = "", "x"
    for at in range(layers):
        text += f"h{at} = MatMul({last}, {'shared' if at else 'w0'}) r{at} = Relu(h{at})\n"
        last = f"r{at}"
    text += f"y = MatMul({last}, last)"
    return model(f"float[batch, {inputs}] x => float[batch, {outputs}] y", text, weights)


def identity(datatype: str = "FP32", dims: Dims = (4,)) -> bytes:
    """x (batch, *dims) → y, equal to x, of any datatype."""
    return identities({"": datatype}, dims)


def identities(datatypes: dict[str, str], dims: Dims = (2,), fixed: Mapping[str, int] = NONE) -> bytes:
    """One input `x<suffix>` and one output `y<suffix>` per entry {suffix: datatype}, each (batch, *dims), unchanged.

    `fixed` gives some of them a fixed number of rows.
    """
    types = {suffix: _type(kind, fixed.get(suffix, "batch"), *dims) for suffix, kind in datatypes.items()}
    return model(
        ", ".join(f"{kind} x{suffix}" for suffix, kind in types.items())
        + " => "
        + ", ".join(f"{kind} y{suffix}" for suffix, kind in types.items()),
        "\n".join(f"y{suffix} = Identity(x{suffix})" for suffix in types),
    )


def _type(datatype: str, *dims: int | str | None) -> str:
    return f"{ONNX_TYPES[datatype]}[{', '.join('?' if dim is None else str(dim) for dim in dims)}]"


def every_datatype() -> bytes:
    """Inputs xBOOL … xBYTES and outputs yBOOL … yBYTES of shape (batch, 2), one for each datatype the worker takes."""
    return identities({datatype: datatype for datatype in ONNX_TYPES if datatype != "BF16"})


def two_in_two_out() -> bytes:
    """a FP32 (batch, 3), b INT64 (batch, 2) → total FP32 (batch, 1), the sum of both, and doubled INT64 (batch, 2)."""
    return model(
        "float[batch, 3] a, int64[batch, 2] b => float[batch, 1] total, int64[batch, 2] doubled",
        f"""b32 = Cast<to = {FLOAT}>(b)
        ab = Concat<axis = 1>(a, b32)
        total = ReduceSum<keepdims = 1>(ab, axis)
        doubled = Mul(b, two)""",
        {"axis": [1], "two": 2},
    )


def bag_of_words(symbols: tuple[str, str] = ("sequence", "sequence")) -> bytes:
    """ids, mask INT64 (batch, sequence) → words FP32 (batch, sequence, 2), row `id` of a table times the mask, and bag
    FP32 (batch, 2), their sum. `symbols` name the second axis of ids and of mask.
    """
    return model(
        f"int64[batch, {symbols[0]}] ids, int64[batch, {symbols[1]}] mask => "
        "float[batch, ?, 2] words, float[batch, 2] bag",
        f"""found = Gather(table, ids)
        mask32 = Cast<to = {FLOAT}>(mask)
        masks = Unsqueeze(mask32, last)
        words = Mul(found, masks)
        bag = ReduceSum<keepdims = 0>(words, first)""",
        {"table": np.arange(20.0).reshape(10, 2), "first": [1], "last": [2]},
    )


def up_to_two() -> bytes:
    """x FP32 (batch, n) → y FP32 (batch, n), for n up to 2: the run fails with a larger n."""
    return model(
        "float[batch, n] x => float[batch, n] y",
        """n = Shape<start = 1, end = 2>(x)
        last = Sub(n, one)
        found = Gather(table, last)
        y = Add(x, found)""",
        {"one": [1], "table": np.zeros(2)},
    )


def every_second() -> bytes:
    """x FP32 (batch, n) → y FP32 (batch, ⌈n / 2⌉): an output of another length on that axis."""
    return model(
        "float[batch, n] x => float[batch, half] y",
        "y = Slice(x, zero, to, one, two)",
        {"zero": [0], "to": [2**31], "one": [1], "two": [2]},
    )


def rounded_up(multiple: int = 16) -> bytes:
    """x FP32 (batch, n) → y FP32 (batch, n rounded up to a multiple): an output that is sometimes as long as x."""
    return model(
        "float[batch, n] x => float[batch, ?] y",
        """n = Shape<start = 1, end = 2>(x)
        minus = Neg(n)
        lacking = Mod(minus, multiple)
        pads = Concat<axis = 0>(before, lacking)
        y = Pad(x, pads)""",
        {"multiple": [multiple], "before": [0, 0, 0]},
    )


def groups(of: int = 4, count: int = -1) -> bytes:
    """x FP32 (batch, n) → y FP32 (batch, of), the sum of groups of `of`. n is a multiple of it, or `count` groups."""
    return model(
        f"float[batch, n] x => float[batch, {of}] y",
        "grouped = Reshape(x, shape) y = ReduceSum<keepdims = 0>(grouped, second)",
        {"shape": [0, count, of], "second": [1]},
    )


def squeezed() -> bytes:
    """x FP32 (batch, n) → y FP32 without dimensions of 1: it has one dimension less where n is 1."""
    return model("float[batch, n] x => float[] y", "y = Squeeze(x)")


def row_sums() -> bytes:
    """x FP32 (batch, 4) → sum FP32 (batch): one scalar per row."""
    return model("float[batch, 4] x => float[batch] sum", "sum = ReduceSum<keepdims = 0>(x, axis)", {"axis": [1]})


def scalars_per_row() -> bytes:
    """x FP32 (batch, 4) → sum FP32 (batch), best INT64 (batch), the column of the largest, label BYTES (batch)."""
    return model(
        "float[batch, 4] x => float[batch] sum, int64[batch] best, string[batch] label",
        """sum = ReduceSum<keepdims = 0>(x, axis)
        best = ArgMax<axis = 1, keepdims = 0>(x)
        label = Gather(names, best)""",
        {"axis": [1], "names": [f"c{n}" for n in range(4)]},
    )


def text_scores(*, named: bool = True, optional_axis: str = "length") -> bytes:
    """input_ids, attention_mask, token_type_ids INT64 (batch, length) → scores FP32 (batch, 4): the sum over the words.

    Each word counts row `id` of a table, and 100 for type 1, where the mask is 1. An id outside the table fails the
    batch. Without `named` the file does not name the axes; with it, mask and types have `optional_axis`.
    """
    length, other = ("length", optional_axis) if named else ("?", "?")
    return model(
        f"int64[batch, {length}] input_ids, int64[batch, {other}] attention_mask, "
        f"int64[batch, {other}] token_type_ids => float[batch, 4] scores",
        f"""rows = Gather(table, input_ids)
        types = Cast<to = {FLOAT}>(token_type_ids)
        offset = Mul(types, hundred)
        offsets = Unsqueeze(offset, last)
        moved = Add(rows, offsets)
        mask = Cast<to = {FLOAT}>(attention_mask)
        masks = Unsqueeze(mask, last)
        kept = Mul(moved, masks)
        scores = ReduceSum<keepdims = 0>(kept, words)""",
        {
            "table": np.random.default_rng(3).standard_normal((100, 4)),
            "hundred": 100.0,
            "last": [2],
            "words": [1],
        },
    )


def text_with_lone_axis() -> bytes:
    """ids INT64 (batch, length), weights FP32 (batch, others, 2) → y FP32 (batch): `others` is weights' own axis."""
    return model(
        "int64[batch, length] ids, float[batch, others, 2] weights => float[batch] y",
        f"""ids32 = Cast<to = {FLOAT}>(ids)
        total = ReduceSum<keepdims = 0>(ids32, one)
        weight = ReduceSum<keepdims = 0>(weights, rest)
        y = Mul(total, weight)""",
        {"one": [1], "rest": [1, 2]},
    )


def for_rows(rows: int, model: bytes) -> bytes:
    """The model exported for a fixed number of rows."""
    held = onnx.load_from_string(model)
    for value in (*held.graph.input, *held.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = rows
    return bytes(held.SerializeToString())


def hungry(width: int = 4, floats: int = 8 << 20) -> bytes:
    """x FP32 (batch, width) → y FP32 (batch, 1), the sum of x. Each row needs so many floats of memory."""
    return model(
        f"float[batch, {width}] x => float[batch, 1] y",
        """sum = ReduceSum<keepdims = 1>(x, one)
        wide = Expand(sum, shape)
        y = Slice(wide, zero, one, one)""",
        {"zero": [0], "one": [1], "shape": [1, floats]},
    )


def lookup(rows: int = 10, width: int = 2) -> bytes:
    """id INT64 (batch, 1) → y FP32 (batch, 1, width), row `id` of a table. An id out of range fails the whole batch."""
    table = np.arange(rows * width, dtype=np.float32).reshape(rows, width)
    return model(f"int64[batch, 1] id => float[batch, 1, {width}] y", "y = Gather(table, id)", {"table": table})


def shares() -> bytes:
    """x FP32 (batch, 4) → y = x / Σx, like a masked mean: NaN for a row of zeros; nothing fails."""
    return _of_rows("whole = ReduceSum<keepdims = 1>(x, axes) y = Div(x, whole)", constants={"axes": [1]})


def _of_rows(text: str, width: int = 4, outputs: str = "", constants: Mapping[str, object] = NONE) -> bytes:
    """x FP32 (batch, width) → y FP32 (batch, width), and the given outputs."""
    shown = f"float[batch, {width}]"
    return model(f"{shown} x => {shown} y{outputs}", text, constants)


def with_loss() -> bytes:
    """x FP32 (batch, 4) → y = x, and loss FP32, one number for the whole batch."""
    text = "y = Identity(x) loss = ReduceMean<axes = [0, 1], keepdims = 0>(x)"
    return _of_rows(text, outputs=", float loss")


def divided_by_rows() -> bytes:
    """x FP32 (batch, 4) → y = x / number of rows: equal for all copies of a row."""
    return _of_rows(f"rows = Shape<end = 1>(x) count = Cast<to = {FLOAT}>(rows) y = Div(x, count)")


def sum_of_logarithms(*, less_the_mean: bool) -> bytes:
    """x FP32 (batch, 32) → y FP32 (batch, 1) = Σ log x: NaN where one is negative. `less_the_mean`: of all rows."""
    end = "mean = ReduceMean<axes = [0]>(sum) y = Sub(sum, mean)" if less_the_mean else "y = Identity(sum)"
    text = f"log = Log(x) sum = ReduceSum(log, axes) {end}"
    return model("float[batch, 32] x => float[batch, 1] y", text, {"axes": [1]})


def square_root(width: int = 4) -> bytes:
    """x FP32 (batch, width) → y = √x: NaN where x is negative, and nothing fails."""
    return _of_rows("y = Sqrt(x)", width)


def parse_number() -> bytes:
    """text BYTES (batch, 1) → y FP32 (batch, 1): the number that the text spells; other text fails the whole batch."""
    return model("string[batch, 1] text => float[batch, 1] y", f"y = Cast<to = {FLOAT}>(text)")


def categories(*others: str) -> bytes:
    """city BYTES (batch, 1) → which FP32 (batch, 1, 2): one-hot of Rome and Oslo; another city fails the whole batch.

    Each of `others`, an input FP32 (batch, 1), is also an output, unchanged, named `same` and its name.
    """
    return model(
        ", ".join(["string[batch, 1] city", *(f"float[batch, 1] {name}" for name in others)])
        + " => "
        + ", ".join(["float[batch, 1, 2] which", *(f"float[batch, 1] same{name}" for name in others)]),
        'which = ai.onnx.ml.OneHotEncoder<cats_strings = ["Rome", "Oslo"], zeros = 0>(city)\n'
        + "\n".join(f"same{name} = Identity({name})" for name in others),
    )


def postcodes(area: str = "area = Concat<axis = 2>(which, where)") -> bytes:
    """code INT64 (batch, 1), city BYTES (batch, 1) → area FP32 (batch, 1, 4): one-hot of 10115, 20095, Rome, Oslo.

    Any other value fails the whole batch, so it runs on neither zeros nor ones.
    """
    return model(
        "int64[batch, 1] code, string[batch, 1] city => float[batch, 1, 4] area",
        f"""which = ai.onnx.ml.OneHotEncoder<cats_int64s = [10115, 20095], zeros = 0>(code)
        where = ai.onnx.ml.OneHotEncoder<cats_strings = ["Rome", "Oslo"], zeros = 0>(city)
        {area}""",
    )


def postcodes_of_all() -> bytes:
    """`postcodes`, but area is less the largest value of each column over all rows."""
    return postcodes(
        """areas = Concat<axis = 2>(which, where)
        most = ReduceMax<axes = [0], keepdims = 1>(areas)
        area = Sub(areas, most)"""
    )


def above() -> bytes:
    """ids, mask INT64 (batch, length) → y FP32 (batch, length): the ids, which must be 10 to 19.

    Another id fails the whole batch, also where the mask is 0.
    """
    return model(
        "int64[batch, length] ids, int64[batch, length] mask => float[batch, length] y",
        # Below 0 the place is far outside the table.
        f"""at = Sub(ids, least)
        place = Mod(at, huge)
        found = Gather(table, place)
        mask32 = Cast<to = {FLOAT}>(mask)
        y = Mul(found, mask32)""",
        {"least": 10, "huge": 2**40, "table": np.arange(10.0, 20.0)},
    )


def lower_case(locale: str) -> bytes:
    """text BYTES (batch) → y BYTES (batch), in lower case by the rules of a locale that the machine must have.

    A second node uses en_US.UTF-8, the default of a node without a locale, such as those of skl2onnx.
    """
    return model(
        "string[batch] text => string[batch] y",
        f"""lower = StringNormalizer<case_change_action = "LOWER", locale = "{locale}">(text)
        y = StringNormalizer<case_change_action = "LOWER">(lower)""",
    )


def quotient() -> bytes:
    """a, b INT64 (batch, 1) → y INT64 (batch, 1) = a / b: a zero in b fails the whole batch."""
    return model("int64[batch, 1] a, int64[batch, 1] b => int64[batch, 1] y", "y = Div(a, b)")


def least_divided() -> bytes:
    """x INT64 (batch, 1) → y INT64 (batch, 1) = -2**63 / x. Zero fails the whole batch; -1 kills the process.

    That quotient fits no INT64, and the processor's own division traps: SIGFPE, in ONNX Runtime 1.31 on x86.
    """
    return model("int64[batch, 1] x => int64[batch, 1] y", "y = Div(least, x)", {"least": -(2**63)})


def killed_at_start() -> bytes:
    """x INT64 (batch, 1) → y INT64 (batch, 1): it loads, and each run kills the process as `least_divided` does."""
    text = "none = Mul(x, zero) minus = Sub(none, one) y = Div(least, minus)"
    return model("int64[batch, 1] x => int64[batch, 1] y", text, {"least": -(2**63), "zero": 0, "one": 1})


def greedy() -> bytes:
    """x INT64 (batch, 1) → y INT64 (batch, 1) = x: a run fills max(x) bytes of memory, fewer than 2**31.

    ONNX Runtime 1.31 finds a wrong largest number above that, in four rows or more.
    """
    return model(
        "int64[batch, 1] x => int64[batch, 1] y",
        f"""most = ReduceMax<keepdims = 0>(x)
        size = Reshape(most, one)
        filled = ConstantOfShape<value = int8[1] {{1}}>(size)
        last = Gather(filled, end)
        ones = Cast<to = {INT64}>(last)
        nothing = Sub(ones, one)
        y = Add(x, nothing)""",
        {"one": [1], "end": -1},
    )


def fragile(table: np.ndarray, weights: np.ndarray) -> bytes:
    """x FP32 (batch, 1 + roots) → y FP32 (batch, outputs): row x[0] of the table + √x[1:] · weights.

    `table` is FP32 (rows, outputs), `weights` FP32 (roots, outputs). A row outside the table fails the whole batch; the
    root of a negative number is NaN, and nothing fails.
    """
    return model(
        f"float[batch, {1 + len(weights)}] x => float[batch, {table.shape[1]}] y",
        f"""place, rest = Split<axis = 1>(x, widths)
        flat = Squeeze(place, axis)
        row = Cast<to = {INT64}>(flat)
        base = Gather(table, row)
        roots = Sqrt(rest)
        more = MatMul(roots, weights)
        y = Add(base, more)""",
        {"widths": [1, len(weights)], "axis": [1], "table": table, "weights": weights},
    )


def with_memory(model: bytes, memory: bytes, columns: slice) -> bytes:
    """The model with the first output of `memory`, a model with state, appended to its output y FP32.

    `memory` gets these columns of x as its first input; its other inputs and outputs are added unchanged.
    """
    held, other = onnx.load_from_string(model), onnx.load_from_string(memory).graph
    (seen, *states), (told, *more) = other.input, other.output
    names = {"x": "its_x", told.name: "its_y"}
    for node in held.graph.node:
        node.output[:] = ["own_y" if name == "y" else name for name in node.output]
    for node in other.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    held.graph.node.extend(
        [
            *_nodes(
                f"""its_columns = Slice(x, from, to, columns)
                its_x = Cast<to = {seen.type.tensor_type.elem_type}>(its_columns)"""
            ),
            *other.node,
            *_nodes(f"its_floats = Cast<to = {FLOAT}>(its_y) y = Concat<axis = 1>(own_y, its_floats)"),
        ]
    )
    bounds = {"from": [columns.start], "to": [columns.stop], "columns": [1]}
    held.graph.initializer.extend([*other.initializer, *(_tensor(name, value) for name, value in bounds.items())])
    held.graph.input.extend(states)
    held.graph.output[0].type.tensor_type.shape.dim[1].dim_value += told.type.tensor_type.shape.dim[1].dim_value
    held.graph.output.extend(more)
    return bytes(held.SerializeToString())


def sequence_mean() -> bytes:
    """tokens FP32 (batch, length), length dynamic → mean FP32 (batch, 1)."""
    text = "mean = ReduceMean<axes = [1], keepdims = 1>(tokens)"
    return model("float[batch, length] tokens => float[batch, 1] mean", text)


def encoder(layers: int = 1, width: int = 16, heads: int = 2, vocabulary: int = 100) -> bytes:
    """A transformer: input_ids, attention_mask INT64 (batch, sequence) → embedding FP32 (batch, width), tokens.

    `embedding` is the mean of the tokens that the mask admits; `tokens` FP32 (batch, sequence, 4) has a part of each
    token. Where the mask is 0 is padding: it changes nothing elsewhere. A sequence above 512 fails the whole batch.
    """
    graph = Graph(np.random.default_rng(0))
    words = graph.node("Gather", graph.random(vocabulary, width), "input_ids")
    length = graph.node("Shape", "input_ids", start=1, end=2)
    start, axis = graph.constant([0], np.int64), graph.constant([0], np.int64)
    state = graph.node("Add", words, graph.node("Slice", graph.random(512, width), start, length, axis))
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
    return graph.model(
        "int64[batch, sequence] input_ids, int64[batch, sequence] attention_mask => "
        f"float[batch, {width}] embedding, float[batch, sequence, 4] tokens"
    )


def _attention(graph: Graph, state: str, hidden: str, width: int, heads: int) -> str:
    """Self-attention: (batch, sequence, width) → equal shape; `hidden` is far below 0 at padding."""
    shape = graph.constant([0, 0, heads, width // heads], np.int64)

    def split(*order: int) -> str:
        return graph.node("Transpose", graph.node("Reshape", graph.dense(state, width, width), shape), perm=order)

    query, key, value = split(0, 2, 1, 3), split(0, 2, 3, 1), split(0, 2, 1, 3)
    scores = graph.node("Mul", graph.node("MatMul", query, key), graph.constant((heads / width) ** 0.5))
    looks = graph.node("Softmax", graph.node("Add", scores, hidden), axis=-1)
    seen = graph.node("Transpose", graph.node("MatMul", looks, value), perm=(0, 2, 1, 3))
    return graph.dense(graph.node("Reshape", seen, graph.constant([0, 0, width], np.int64)), width, width)


class Graph:
    """Nodes and constants with unique names, in the order of the calls."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self._constants: list[TensorProto] = []
        self._rng = rng

    def node(self, kind: str, *inputs: str, gives: str | None = None, **attributes: Any) -> str:
        """Add a node and return the name of its output: `gives`, or a new one."""
        output = gives or f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def constant(self, value: object, dtype: type[np.generic] = np.float32) -> str:
        name = f"c{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def random(self, *shape: int, scale: float = 1.0) -> str:
        return self.constant(self._rng.standard_normal(shape) * scale)

    def dense(self, of: str, inputs: int, outputs: int, gives: str | None = None) -> str:
        """A dense layer: (…, inputs) → (…, outputs)."""
        product = self.node("MatMul", of, self.random(inputs, outputs, scale=inputs**-0.5))
        return self.node("Add", product, self.random(outputs, scale=0.1), gives=gives)

    def normal(self, of: str, width: int) -> str:
        """Normalise each token to mean 0 and variance 1."""
        ones, zeros = self.constant(np.ones(width)), self.constant(np.zeros(width))
        return self.node("LayerNormalization", of, ones, zeros, axis=-1)

    def model(self, shown: str, opset: int = 17) -> bytes:
        return model(shown, nodes=self.nodes, tensors=self._constants, opset=opset)


def bag_of_grams() -> bytes:
    """x INT64 (batch, 4) → counts FP32 (batch, 3) of 1, 2 and 3 in x; w INT64 (batch, 2) → v, unchanged.

    ONNX Runtime counts on the CPU, on CUDA too.
    """
    return model(
        "int64[batch, 4] x, int64[batch, 2] w => float[batch, 3] counts, int64[batch, 2] v",
        """counts = TfIdfVectorizer<mode = "TF", min_gram_length = 1, max_gram_length = 1, max_skip_count = 0,
            ngram_counts = [0], ngram_indexes = [0, 1, 2], pool_int64s = [1, 2, 3]>(x)
        v = Identity(w)""",
    )


def first_columns() -> bytes:
    """x INT64 (batch, 4) → y INT64 (batch, ?): as many columns as the largest number in x."""
    return model(
        "int64[batch, 4] x => int64[batch, ?] y",
        """most = ReduceMax<keepdims = 0>(x)
        end = Reshape(most, one)
        y = Slice(x, start, end, one)""",
        {"start": [0], "one": [1]},
    )


def misdeclared(columns: int | None = 4) -> bytes:
    """x FP32 (batch, columns) → y, its first two columns (the file declares three), and same, equal to x."""
    shown = _type("FP32", "batch", columns)
    return model(
        f"{shown} x => float[batch, 3] y, {shown} same",
        f"""zeros = Sub(x, x)
        zero32 = ReduceMax<keepdims = 0>(zeros)
        zero = Cast<to = {INT64}>(zero32)
        end = Add(zero, two)
        y = Slice(x, start, end, one)
        same = Identity(x)""",
        {"start": [0], "one": [1], "two": [2]},
    )


def convolution(kernel: int = 40, side: int | None = None) -> bytes:
    """image FP32 (batch, 1, height, width), both `side`, or dynamic and at least `kernel` → y FP32 (batch, 1, ?, ?)."""
    image = f"float[batch, 1, {side or 'height'}, {side or 'width'}] image"
    return model(f"{image} => float[batch, 1, ?, ?] y", "y = Conv(image, w)", {"w": np.ones((1, 1, kernel, kernel))})


def fixed_batch(rows: int = 4) -> bytes:
    """x FP32 (rows, 3) → y, equal to x: exported with a fixed batch axis."""
    return for_rows(rows, identity("FP32", (3,)))


def of_unknown_rank() -> bytes:
    """x FP32 → y, equal to x. The file does not say how many dimensions they have."""
    return model("float[] x => float[] y", "y = Identity(x)")


def without_outputs() -> bytes:
    """x FP32 (batch, 4) → no output; y is computed and not returned."""
    return model("float[batch, 4] x => ", "y = Relu(x)")


def reshaped_to_one_row() -> bytes:
    """x FP32 (batch, 4) → y, equal to x, by a Reshape to a shape with one row."""
    return _of_rows("y = Reshape(x, shape)", constants={"shape": [1, 4]})


def without_inputs() -> bytes:
    """y FP32 (1), a constant."""
    return model(" => float[batch] y", "y = Identity(one)", {"one": [1.0]})


def softmax_of_columns() -> bytes:
    """x FP32 (batch, 4) → y: each number's share of its column, over all rows of the batch."""
    return _of_rows("y = Softmax<axis = 0>(x)")


def running_sums() -> bytes:
    """x FP32 (batch, 4) → y: each row plus all rows before it, like a recurrent model with time on the first axis."""
    return _of_rows("y = CumSum(x, axis)", constants={"axis": 0})


def sorted_rows(width: int = 4, *, largest: int = 1) -> bytes:
    """x FP32 (batch, width) → y: the rows sorted by their sums, the largest first (0: last), like a ranking."""
    return _of_rows(
        f"""sums = ReduceSum<keepdims = 0>(x, second)
        rows = Shape(sums)
        sorted, order = TopK<axis = 0, largest = {largest}>(sums, rows)
        y = Gather(x, order)""",
        width,
        constants={"second": [1]},
    )


def quantised_together() -> bytes:
    """x FP32 (batch, 4) → y: x in 256 steps, whose size the whole batch shares (dynamic quantisation)."""
    return _of_rows("steps, size, zero = DynamicQuantizeLinear(x) y = DequantizeLinear(steps, size, zero)")


def shifted_ids() -> bytes:
    """ids INT64 (batch, 4) → y: each row minus the row before it; for the first row, minus the last."""
    return model(
        "int64[batch, 4] ids => int64[batch, 4] y",
        "last = Slice(ids, minus_one, end, axis) y = Sub(ids, last)",
        {"minus_one": [-1], "end": [2**62], "axis": [0]},
    )


def noisy() -> bytes:
    """x FP32 (batch, 4) → y: x with noise, different in each run."""
    return _of_rows("noise = RandomNormalLike(x) y = Add(x, noise)")


def normalised_in_training() -> bytes:
    """x FP32 (batch, 4, 8) → y, from a BatchNormalization that was exported in training mode."""
    return model(
        "float[batch, 4, 8] x => float[batch, 4, 8] y",
        "y, mean, variance = BatchNormalization<training_mode = 1>(x, s, b, m, v)",
        dict.fromkeys("sbmv", np.ones(4)),
    )


def similarities(*, quantised: bool = False) -> bytes:
    """x FP32 (batch, 4) → y FP32 (batch, batch), each row's product with all rows, as in CLIP; and same, equal to x.

    `quantised`: y is INT64, and the model has a scale for all rows inside.
    """
    return model(
        f"float[batch, 4] x => float[batch, 4] same, {_type('INT64' if quantised else 'FP32', 'batch', None)} y",
        f"""t = Transpose<perm = [1, 0]>(x)
        products = MatMul(x, t)
        y = Cast<to = {INT64 if quantised else FLOAT}>(products)
        same = Identity(x)
        {"unused, scale, zero = DynamicQuantizeLinear(x)" if quantised else ""}""",
    )


def tokens(axis: str | None = "num_tokens") -> bytes:
    """text BYTES (batch) → tokens BYTES (as many as all texts have), by chance sometimes as many as rows."""
    return model(
        f"string[batch] text => {_type('BYTES', axis)} tokens",
        """parts, count = StringSplit<delimiter = " ">(text)
        all = Reshape(parts, flat)
        is_empty = Equal(all, empty)
        is_token = Not(is_empty)
        tokens = Compress<axis = 0>(all, is_token)""",
        {"flat": [-1], "empty": [""]},
        opset=20,
    )


def counted_out() -> bytes:
    """x FP32 (batch, 1) → y FP32 (?, 1): a row above 1e9 is left out, and one of -1e9 or less comes twice.

    A batch with one of each has as many output rows as input rows.
    """
    return model(
        "float[batch, 1] x => float[?, 1] y",
        """twice = Concat<axis = 1>(x, x)
        are_there = LessOrEqual(twice, bounds)
        all = Reshape(twice, flat)
        are_kept = Reshape(are_there, flat)
        kept = Compress<axis = 0>(all, are_kept)
        y = Unsqueeze(kept, one)""",
        {"bounds": [1e9, -1e9], "flat": [-1], "one": [1]},
    )


# A row holds an object where its fifth number is larger than this.
FOUND = 1e6


def detector(gives: str = "each", axis: str | None = "found", labels: str = "") -> bytes:
    """x FP32 (batch, 5) → y: rows with an object (FOUND), found by NonMaxSuppression and unchanged.

    `gives` "each" puts each in its own row of zeros (batch, 5); "first" only looks at the first row, like an export
    that was traced with one image; "found" returns only the found rows, (axis, 5).
    """
    scattered = """shape = Shape(x)
        zeros = ConstantOfShape(shape)
        rows = Slice(found, zero, one, one)
        y = ScatterND(zeros, rows, objects)"""
    return model(
        "float[batch, 5] x => "
        f"{_type('FP32', axis if gives == 'found' else 'batch', 5)} y{', int64[batch, 1] label' if labels else ''}",
        f"""seen = Slice(x, zero, {"one" if gives == "first" else "all"}, zero)
        images = Reshape(seen, each)
        boxes = Slice(images, zero, four, two)
        scores = Slice(images, four, five, two)
        found = NonMaxSuppression(boxes, scores, one, half, least)
        images_found = Gather<axis = 1>(found, first)
        {"y" if gives == "found" else "objects"} = Gather<axis = 0>(x, images_found)
        {"" if gives == "found" else scattered}
        {labels}""",
        {
            **{name: [at] for name, at in {"zero": 0, "one": 1, "two": 2, "four": 4, "five": 5, "all": 2**31}.items()},
            "first": 0,
            "each": [-1, 1, 5],
            "half": [0.5],
            "least": [FOUND],
        },
    )


def detector_of_one_class() -> bytes:
    """The detector that gives each object in its own row, with labels INT64 (batch, 1), all 0."""
    return detector(labels="of_one_class = Slice(x, zero, one, one) label = ArgMax<axis = 1>(of_one_class)")


def scattered_back(axis: str = "rows") -> bytes:
    """x FP32 (batch, 4) → y FP32 (axis, 4): numbers above 0, found by NonZero and put into rows of zeros."""
    return model(
        f"float[batch, 4] x => float[{axis}, 4] y",
        """positive = Relu(x)
        across = NonZero(positive)
        places = Transpose<perm = [1, 0]>(across)
        values = GatherND(x, places)
        zeros = Sub(x, x)
        y = ScatterND(zeros, places, values)""",
    )


def exponentials() -> bytes:
    """x FP32 (batch, 64) → y = exp(x), infinite from 89 on."""
    return _of_rows("y = Exp(x)", 64)


def with_empty_past() -> bytes:
    """x FP32 (batch, 2), past FP32 (batch, 0) → y FP32 (batch, 2): past and x concatenated, so equal to x."""
    return model("float[batch, 2] x, float[batch, 0] past => float[batch, 2] y", "y = Concat<axis = 1>(past, x)")


def scaled(scale: Dims = (), *, rows: int | str = "batch", weight: float = 1.0) -> bytes:
    """x FP32 (rows, 2), scale FP32 with dimensions `scale` → y FP32 (rows, 2) = x · scale · weight."""
    shown = f"float[{rows}, 2]"
    scales = _type("FP32", *scale) if scale else "float"
    return model(
        f"{shown} x, {scales} scale => {shown} y", "h = Mul(x, scale) y = Mul(h, weight)", {"weight": [weight]}
    )


def class_map() -> bytes:
    """x FP32 (batch, 2) → y, a sequence of maps {class: |x|}, like scikit-learn exports with `zipmap` on."""
    text = "scores = Abs(x) y = ai.onnx.ml.ZipMap<classlabels_int64s = [0, 1]>(scores)"
    return model("float[batch, 2] x => seq(map(int64, float)) y", text)


def spinner() -> bytes:
    """turns INT64 (batch, 1) → y FP32 (batch, 1) = turns: a run multiplies 64 × 64 matrices max(turns) times.

    So a request chooses its time (`kafka/spins.py` has a turn's time); one of 10**12 turns hangs the run.
    """
    return model(
        "int64[batch, 1] turns => float[batch, 1] y",
        # The loop's result must reach an output, or the loop is optimised away; the square is idempotent and finite.
        f"""most = ReduceMax<keepdims = 0>(turns)
        state = {_loop("most")}
        peak = ReduceMax<keepdims = 0>(state)
        nothing = Mul(peak, zero)
        turns32 = Cast<to = {FLOAT}>(turns)
        y = Add(turns32, nothing)""",
        {"go": True, "zero": 0.0, "square": np.full((64, 64), 1 / 64)},
    )


def slow_lookup(turns: int) -> bytes:
    """id INT64 (batch, 1) → y FP32 (batch, 1, 1) = id, after so many spinner turns; above 9, the run fails."""
    return model(
        "int64[batch, 1] id => float[batch, 1, 1] y",
        # The loop depends on the input, or it would be computed only once, when the model is loaded.
        f"""most = ReduceMax<keepdims = 0>(id)
        nothing = Mul(most, none)
        count = Add(turns, nothing)
        state = {_loop("count")}
        peak = ReduceMax<keepdims = 0>(state)
        whole = Cast<to = {INT64}>(peak)
        zero = Mul(whole, none)
        late = Add(id, zero)
        y = Gather(table, late)""",
        {
            "none": 0,
            "turns": turns,
            "go": True,
            "square": np.full((64, 64), 1 / 64),
            "table": np.arange(10, dtype=np.float32).reshape(10, 1),
        },
    )


def _loop(turns: str) -> str:
    """A loop that only takes time: a product of 64 × 64 matrices each turn."""
    head = "(int64 at, bool keep_in, float[64, 64] state_in) => (bool keep_out, float[64, 64] state_out)"
    steps = "keep_out = Identity(keep_in) state_out = MatMul(state_in, square)"
    return f"Loop<body = turn {head} {{{steps}}}>({turns}, go, square)"


def running_mean() -> bytes:
    """x, sum_in FP64 (batch, 1), count_in INT64 (batch, 1) → mean of all x so far, sum_out, count_out."""
    return model(
        "double[batch, 1] x, double[batch, 1] sum_in, int64[batch, 1] count_in => "
        "double[batch, 1] mean, double[batch, 1] sum_out, int64[batch, 1] count_out",
        f"""sum_out = Add(sum_in, x)
        count_out = Add(count_in, one)
        count = Cast<to = {DOUBLE}>(count_out)
        mean = Div(sum_out, count)""",
        {"one": [[1]]},
    )


def running_square() -> bytes:
    """x, s_in FP32 (batch, 1) → y, s_out: both s_in² + x. A large state becomes infinity."""
    return model(
        "float[batch, 1] x, float[batch, 1] s_in => float[batch, 1] y, float[batch, 1] s_out",
        "square = Mul(s_in, s_in) s_out = Add(square, x) y = Identity(s_out)",
    )


def gru(inputs: int = 4, hidden: int = 16, outputs: int = 3, *, resets_after: int = 0) -> bytes:
    """x FP32 (batch, inputs), h_in FP32 (batch, hidden) → y FP32 (batch, outputs), h_out: one step of a GRU.

    `resets_after`: 1 applies the reset after the product with the state, as PyTorch does. ONNX Runtime supports only
    that on CUDA.
    """
    rng = np.random.default_rng(0)
    shapes = {
        "w": (1, 3 * hidden, inputs),
        "r": (1, 3 * hidden, hidden),
        "b": (1, 6 * hidden),
        "head": (hidden, outputs),
    }
    return model(
        f"float[batch, {inputs}] x, float[batch, {hidden}] h_in => "
        f"float[batch, {outputs}] y, float[batch, {hidden}] h_out",
        f"""steps = Unsqueeze(x, first)
        before = Unsqueeze(h_in, first)
        , after = GRU<hidden_size = {hidden}, linear_before_reset = {resets_after}>(steps, w, r, b, , before)
        h_out = Squeeze(after, first)
        y = MatMul(h_out, head)""",
        {
            "first": [0],
            **{name: rng.standard_normal(shape) / shape[-1] ** 0.5 for name, shape in shapes.items()},
        },
    )


def as_ort(model: bytes, folder: Path) -> bytes:
    """The model, converted to ONNX Runtime's own format."""
    path = folder / "converted.ort"
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(path)
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return path.read_bytes()


def with_external_data(folder: Path) -> Path:
    """An MLP written to `folder/external.onnx`, with its weights in `folder/external.bin`."""
    path = folder / "external.onnx"
    held = onnx.load_from_string(mlp(inputs=64, hidden=(64,)))
    onnx.save(held, path, save_as_external_data=True, location="external.bin", size_threshold=0)
    return path
