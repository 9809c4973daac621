"""Columns that come as one block: the answers are those of the model as it was, and nobody sees a block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.models import FLOAT, model, save
from tests.records_models import wide
from worker.core.records import Array
from worker.inference.block_session import BlockSession
from worker.inference.device import open_cpu
from worker.inference.graph_blocks import FEWEST, in_blocks
from worker.inference.model_file import LoadableModel
from worker.inference.session import Session

NAMES = [f"c{at}" for at in range(FEWEST + 4)]
WIDTH = len(NAMES)
Feeds = Mapping[str, Array]

_NUMBERS = {"float": np.float32, "double": np.float64, "int64": np.int64, "float16": np.float16, "bool": np.bool_}
_NUMBERS |= {kind: np.dtype(kind).type for kind in ("int8", "int16", "int32", "uint8", "uint16", "uint32", "uint64")}


def columns(names: Sequence[str] = NAMES, kind: str = "float", batch: str = "batch") -> str:
    return ", ".join(f"{kind}[{batch}, 1] {name}" for name in names)


def joined(names: Sequence[str] = NAMES, to: str = "all") -> str:
    return f"{to} = Concat<axis = 1>({', '.join(names)})"


def opened(content: bytes) -> Session:
    return open_cpu(LoadableModel(content, is_ort=False), 1, "").session


def rows_for(session: Session, count: int, seed: int = 0) -> Feeds:
    rng = np.random.default_rng(seed)
    kinds = {f"tensor({kind})": dtype for kind, dtype in _NUMBERS.items()}
    feeds: dict[str, Array] = {}
    for node in session.get_inputs():
        shape = [count, *node.shape[1:]]
        if node.type == "tensor(string)":
            feeds[node.name] = rng.choice(["Rome", "Oslo"], shape).astype(object)
        else:
            feeds[node.name] = (rng.standard_normal(shape) * 9).astype(kinds[node.type])
    return feeds


def shown(nodes: Sequence[object]) -> list[tuple[object, ...]]:
    return [(node.name, node.type, node.shape) for node in nodes]  # type: ignore[attr-defined]  # ONNX Runtime's


def compare(content: bytes, *, is_changed: bool = True) -> None:
    """Fails unless the worker's session shows and answers exactly what ONNX Runtime's does."""
    plain, ours = ort.InferenceSession(content, providers=["CPUExecutionProvider"]), opened(content)

    assert isinstance(ours, BlockSession) == is_changed
    assert shown(ours.get_inputs()) == shown(plain.get_inputs())
    assert shown(ours.get_outputs()) == shown(plain.get_outputs())
    names = [node.name for node in plain.get_outputs()]
    for count in (1, 3, 64):
        feeds = rows_for(ours, count, seed=count)
        for own, expected in zip(ours.run(names, feeds, None), plain.run(names, feeds), strict=True):
            assert own.dtype == expected.dtype
            assert own.shape == expected.shape
            assert own.tobytes() == expected.tobytes() or own.tolist() == expected.tolist()


def weights(rows: int = WIDTH, out: int = 3) -> Array:
    return np.random.default_rng(0).standard_normal((rows, out))


def dense(shown_as: str = f"{columns()} => float[batch, 3] y", text: str = "", **constants: object) -> bytes:
    return model(shown_as, f"{joined()} {text} y = MatMul(all, w)", {"w": weights(), **constants})


def test_a_network_over_joined_columns_answers_the_same() -> None:
    """A dense network whose columns are all joined has equal answers, and its columns are one input."""
    compare(dense())

    changed = in_blocks(memoryview(dense()))
    assert changed is not None
    assert [len(block.columns) for block in changed.joined] == [WIDTH]


@pytest.mark.parametrize("kind", _NUMBERS)
def test_columns_of_each_datatype_answer_the_same(kind: str) -> None:
    """Columns of any datatype of numbers can be a block."""
    outputs = ", ".join(f"{kind}[batch, 1] y{name}" for name in NAMES)
    text = " ".join(f"y{name} = Identity({name})" for name in NAMES)
    compare(model(f"{columns(kind=kind)} => {outputs}, {kind}[batch, {WIDTH}] all", f"{text} {joined()}"))


def test_texts_stay_single() -> None:
    """Columns of texts are left alone, beside a block of numbers."""
    texts = [f"t{at}" for at in range(FEWEST)]
    inputs = f"{columns(texts, 'string')}, {columns()}"
    compare(
        model(f"{inputs} => string[batch, {FEWEST}] t, float[batch, {WIDTH}] all", f"{joined(texts, 't')} {joined()}")
    )


def test_few_columns_stay_single() -> None:
    """A model with fewer columns of one datatype than pay is left alone."""
    few = NAMES[: FEWEST - 1]
    shown_as = f"{columns(few)}, {columns(['n'], 'int64')} => float[batch, {len(few)}] all, int64[batch, 1] m"
    compare(model(shown_as, f"{joined(few)} m = Identity(n)"), is_changed=False)


def test_mixed_datatypes_are_a_block_each() -> None:
    """Floats and whole numbers that alternate become two blocks, and the inputs keep their order."""
    whole = [f"n{at}" for at in range(FEWEST)]
    mixed = [pair for each in zip(NAMES, whole, strict=False) for pair in each]
    inputs = ", ".join(columns([name], "int64" if name in whole else "float") for name in mixed)
    casts = " ".join(f"f{name} = Cast<to = {FLOAT}>({name})" for name in whole)
    every = [f"f{name}" if name in whole else name for name in mixed]
    content = model(
        f"{inputs}, string[batch, 1] t => float[batch, {len(every)}] all, string[batch, 1] u",
        f"{casts} {joined(every)} u = Identity(t)",
    )

    compare(content)

    changed = in_blocks(memoryview(content))
    assert changed is not None
    assert sorted(len(block.columns) for block in changed.joined) == [FEWEST, FEWEST]


def test_columns_that_several_nodes_take_answer_the_same() -> None:
    """A column may be taken twice by one node, by several nodes, and be an output, too."""
    text = f"{joined()} {joined([*NAMES[3:9], 'c0', 'c0', *NAMES[9:]], 'others')} s = Add(c1, c2) d = Mul(c3, c3)"
    outputs = f"float[batch, {WIDTH}] all, float[batch, {WIDTH - 1}] others, float[batch, 1] s, float[batch, 1] d"
    compare(model(f"{columns()} => {outputs}, float[batch, 1] c5", text))


def test_columns_between_others_stay_together() -> None:
    """Neighbours in a `Concat` come as one piece; what stands between them stays where it is."""
    text = f"n = Neg(c4) {joined([*NAMES[5:], 'n', *NAMES[:4], 'x'])}"
    compare(model(f"{columns()}, float[batch, 2] x => float[batch, {WIDTH + 2}] all", text))


def test_columns_joined_along_another_axis_answer_the_same() -> None:
    """A `Concat` along the batch is none of columns; one along the last axis is."""
    compare(model(f"{columns()} => float[many, 1] y", f"y = Concat<axis = 0>({', '.join(NAMES)})"))
    compare(model(f"{columns()} => float[batch, {WIDTH}] y", f"y = Concat<axis = -1>({', '.join(NAMES)})"))


def test_columns_of_an_inner_graph_answer_the_same() -> None:
    """A column that only a branch or a loop takes, beside a `Concat` of it, is there."""
    text = f"""{joined()}
    first = ReduceSum<keepdims = 0>(c0)
    asked = Greater(first, zero)
    y = If(asked) <
        then_branch = then () => (float[batch, 1] t) {{ t = Add(c1, c2) }},
        else_branch = other () => (float[batch, 1] e) {{ e = Mul(c3, c4) }}
    >
    z = Loop(three, yes, c5) <
        body = body (int64 at, bool on, float[batch, 1] so_far) => (bool goes_on, float[batch, 1] now) {{
            goes_on = Identity(on)
            now = Add(so_far, c6)
        }}
    >"""
    outputs = f"float[batch, {WIDTH}] all, float[batch, 1] y, float[batch, 1] z"
    compare(model(f"{columns()} => {outputs}", text, {"zero": 0.0, "three": 3, "yes": True}))


def test_a_column_with_a_value_in_the_file_is_no_input() -> None:
    """An input that is also an initializer keeps its value, and is not shown, as ONNX Runtime has it."""
    held = onnx.load_from_string(
        model(f"{columns()}, float[1, 1] fed => float[batch, {WIDTH}] y", f"{joined()} y = Add(all, fed)")
    )
    held.graph.initializer.append(numpy_helper.from_array(np.array([[7.0]], np.float32), "fed"))
    compare(held.SerializeToString())

    held.graph.input[-1].type.tensor_type.shape.dim[0].dim_param = "batch"
    compare(held.SerializeToString())


@pytest.mark.parametrize(("floats", "counts"), [(WIDTH, 0), (WIDTH, WIDTH), (3, WIDTH)])
def test_trees_over_columns_answer_the_same(floats: int, counts: int) -> None:
    """A scaler and boosted trees that skl2onnx converted have equal answers."""
    compare(wide(floats, counts, trees=3))


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs_answer_the_same(seed: int) -> None:
    """Any arrangement of columns in nodes gives equal answers."""
    rng = np.random.default_rng(seed)
    names = [f"c{at}" for at in range(int(rng.integers(FEWEST, 3 * FEWEST)))]
    text, outputs = "", []
    for at in range(int(rng.integers(1, 5))):
        some = list(rng.permutation(names) if rng.random() < 0.5 else names)[: int(rng.integers(1, len(names) + 1))]
        for place in rng.integers(0, len(some), int(rng.integers(0, 4))):
            text += f"m{at}_{place} = Neg({some[place]}) " if f"m{at}_{place} =" not in text else ""
            if some[place] in names:
                some[place] = f"m{at}_{place}"
        text += f"o{at} = Concat<axis = {rng.choice([1, -1])}>({', '.join(some)}) "
        outputs.append(f"float[batch, {len(some)}] o{at}")
    text = text.replace("Neg(m", "Identity(m")
    compare(model(f"{columns(names)} => {', '.join(outputs)}", text))


def test_the_names_of_a_block_are_new() -> None:
    """A model that has the block's names already keeps its own."""
    text = f"{joined(to='column_block0')} column_block0_turned = Neg(column_block0)"
    compare(model(f"{columns()} => float[batch, {WIDTH}] column_block0_turned", text))


def _old(held: onnx.ModelProto) -> None:
    held.opset_import[0].version = 11


def _without_opset(held: onnx.ModelProto) -> None:
    del held.opset_import[0]


def _fixed(held: onnx.ModelProto) -> None:
    for each in held.graph.input:
        each.type.tensor_type.shape.dim[0].dim_value = 5


def _twice(held: onnx.ModelProto) -> None:
    held.graph.input.append(held.graph.input[0])


def _sparse(held: onnx.ModelProto) -> None:
    held.graph.sparse_initializer.add().values.name = "s"


def _wide(held: onnx.ModelProto) -> None:
    for each in held.graph.input:
        each.type.tensor_type.shape.dim[1].dim_value = 2


def _flat(held: onnx.ModelProto) -> None:
    for each in held.graph.input:
        del each.type.tensor_type.shape.dim[1]


def _unshaped(held: onnx.ModelProto) -> None:
    for each in held.graph.input:
        each.type.tensor_type.ClearField("shape")


def _sequences(held: onnx.ModelProto) -> None:
    for each in held.graph.input:
        each.type.CopyFrom(helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, ["batch", 1])))


@pytest.mark.parametrize("change", [_old, _without_opset, _fixed, _twice, _sparse, _wide, _flat, _unshaped, _sequences])
def test_an_odd_model_is_left_alone(change: Callable[[onnx.ModelProto], None]) -> None:
    """A model whose columns cannot be split, or are none, stays as it is."""
    held = onnx.load_from_string(dense())
    change(held)

    assert in_blocks(memoryview(held.SerializeToString())) is None


def test_weights_in_another_file_stay_there(tmp_path: Path) -> None:
    """A model with weights in other files is opened from its path, where these are."""
    held = onnx.load_from_string(dense())
    onnx.save(held, tmp_path / "model.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)

    session = open_cpu(LoadableModel(str(tmp_path / "model.onnx"), is_ort=False), 1, "").session

    assert not isinstance(session, BlockSession)


def test_a_file_is_changed_in_memory_only(tmp_path: Path) -> None:
    """A model named by its path has blocks, and its file stays as it is."""
    path = save(dense(), tmp_path)

    session = open_cpu(LoadableModel(str(path), is_ort=False), 1, "").session

    assert isinstance(session, BlockSession)
    assert path.read_bytes() == dense()


def test_columns_that_lie_apart_are_joined() -> None:
    """Columns that are views of a table are joined as others are."""
    content = dense()
    table = np.random.default_rng(1).standard_normal((5, WIDTH)).astype(np.float32)
    views = {name: table[:, at : at + 1] for at, name in enumerate(NAMES)}
    copies = {name: view.copy() for name, view in views.items()}

    session = opened(content)

    assert session.run(["y"], views, None)[0].tobytes() == session.run(["y"], copies, None)[0].tobytes()


def test_unequal_rows_are_refused() -> None:
    """Columns of unequal lengths never share a block, even if their sum fits."""
    session = opened(dense())
    feeds = {**rows_for(session, 2)}
    feeds["c0"], feeds["c1"] = np.zeros((1, 1), np.float32), np.zeros((3, 1), np.float32)

    with pytest.raises(ValueError, match="unequal numbers of rows"):
        session.run(["y"], feeds, None)


def test_a_changed_model_that_cannot_be_opened_is_opened_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """If ONNX Runtime refuses the changed model, it gets the model of the file."""
    monkeypatch.setattr("worker.inference.graph_blocks._INT64", TensorProto.DOUBLE)  # no sizes

    compare(dense(), is_changed=False)


@pytest.mark.parametrize("seed", range(30))
def test_a_damaged_model_is_never_an_error_of_ours(seed: int) -> None:
    """Bytes that are no model are refused by ONNX Runtime, and by nothing before it."""
    rng = np.random.default_rng(seed)
    content = bytearray(dense())
    for at in rng.integers(0, len(content), int(rng.integers(1, 6))):
        content[at] = rng.integers(0, 256)
    damaged = bytes(content[: int(rng.integers(len(content) // 2, len(content) + 1))])

    try:
        changed = in_blocks(memoryview(damaged))
    except (ValueError, IndexError):
        return
    assert changed is None or changed.joined
