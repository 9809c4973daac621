"""Where a model says that its weights lie in other files: at any place, in any spelling that protobuf allows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from worker.core.failures import BadConfiguration, RunFailure
from worker.inference.model_loading import load
from worker.inference.onnx_file.external_data import _INNER, _MessageType, is_elsewhere, locations
from worker.inference.running.device import open_cpu
from worker.settings import ModelSettings

MESSAGES: dict[_MessageType, Any] = {
    _MessageType.MODEL: onnx.ModelProto,
    _MessageType.GRAPH: onnx.GraphProto,
    _MessageType.NODE: onnx.NodeProto,
    _MessageType.ATTRIBUTE: onnx.AttributeProto,
    _MessageType.FUNCTION: onnx.FunctionProto,
    _MessageType.TRAINING: onnx.TrainingInfoProto,
    _MessageType.SPARSE_TENSOR: onnx.SparseTensorProto,
    _MessageType.TENSOR: onnx.TensorProto,
}
WEIGHTS = "weights.bin"


def elsewhere(name: str = "w") -> TensorProto:
    """Four floats in another file."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", WEIGHTS), ("length", "16")):
        tensor.external_data.add(key=key, value=value)
    return tensor


def here(name: str = "w") -> TensorProto:
    """Four floats in the model, which says so: 0 is what a tensor says that was read from another file and saved."""
    tensor = numpy_helper.from_array(np.zeros(4, np.float32), name)
    tensor.data_location = TensorProto.DEFAULT
    return tensor


def graph_of(tensor: TensorProto) -> onnx.GraphProto:
    """A branch that adds the tensor to `x` of the graph around it."""
    output = helper.make_tensor_value_info("z", TensorProto.FLOAT, None)
    return helper.make_graph([helper.make_node("Add", ["x", "w"], ["z"])], "branch", [], [output], [tensor])


def model_with(*nodes: onnx.NodeProto, tensors: tuple[TensorProto, ...] = ()) -> onnx.ModelProto:
    """A model of `x` and `y`, rows of four floats."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in "xy"]
    graph = helper.make_graph(nodes, "test", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def in_branch(tensor: TensorProto) -> onnx.ModelProto:
    """ONNX Runtime reads the branch of an `If` wherever the model came from."""
    yes = helper.make_node("Constant", [], ["yes"], value=numpy_helper.from_array(np.array(True)))
    choice = helper.make_node("If", ["yes"], ["y"], then_branch=graph_of(tensor), else_branch=graph_of(here()))
    return model_with(yes, choice)


def in_function(tensor: TensorProto) -> onnx.ModelProto:
    node = helper.make_node("Constant", [], ["w"], value=tensor)
    model = model_with()
    model.functions.append(helper.make_function("own", "F", [], ["w"], [node], [helper.make_opsetid("", 17)]))
    return model


def in_function_default(tensor: TensorProto) -> onnx.ModelProto:
    model = in_function(here())
    model.functions[0].attribute_proto.append(helper.make_attribute("value", tensor))
    return model


def in_training(tensor: TensorProto, part: str) -> onnx.ModelProto:
    model = model_with()
    getattr(model.training_info.add(), part).CopyFrom(graph_of(tensor))
    return model


PLACED = numpy_helper.from_array(np.arange(4), "places")


def sparse(values: TensorProto, indices: TensorProto) -> onnx.SparseTensorProto:
    return onnx.SparseTensorProto(values=values, indices=indices, dims=[4])


def sparsely(made: onnx.SparseTensorProto) -> onnx.ModelProto:
    model = model_with()
    model.graph.sparse_initializer.append(made)
    return model


PLACES: dict[str, Callable[[TensorProto], onnx.ModelProto]] = {
    "initializer": lambda tensor: model_with(tensors=(here("a"), tensor)),
    "constant": lambda tensor: model_with(helper.make_node("Constant", [], ["w"], value=tensor)),
    "list of tensors": lambda tensor: model_with(helper.make_node("Own", [], ["w"], some=[here(), tensor])),
    "branch": in_branch,
    "list of graphs": lambda tensor: model_with(helper.make_node("Own", [], ["w"], some=[graph_of(tensor)])),
    "function": in_function,
    "default of a function": in_function_default,
    "initialization": lambda tensor: in_training(tensor, "initialization"),
    "algorithm": lambda tensor: in_training(tensor, "algorithm"),
    "sparse values": lambda tensor: sparsely(sparse(tensor, PLACED)),
    "sparse indices": lambda tensor: sparsely(sparse(here(), tensor)),
    "sparse constant": lambda tensor: model_with(
        helper.make_node("Constant", [], ["w"], sparse_value=sparse(tensor, PLACED))
    ),
    "list of sparse": lambda tensor: model_with(helper.make_node("Own", [], ["w"], some=[sparse(tensor, PLACED)])),
}


def test_the_ways_to_a_tensor_are_those_of_onnx() -> None:
    """A version of onnx that lets one stand in a new place fails here."""
    kinds = {message.DESCRIPTOR.name: kind for kind, message in MESSAGES.items()}

    for kind, message in MESSAGES.items():
        inner = {
            field.number: kinds[field.message_type.name]
            for field in message.DESCRIPTOR.fields
            if field.message_type is not None and _holds_tensors(field.message_type, set())
        }
        assert inner == _INNER[kind], kind


def _holds_tensors(message: object, seen: set[str]) -> bool:
    name, fields = message.name, message.fields  # type: ignore[attr-defined]  # a descriptor: protobuf gives no types
    if name in seen:
        return False
    inner = [field.message_type for field in fields if field.message_type is not None]
    return name == "TensorProto" or any(_holds_tensors(one, seen | {name}) for one in inner)


@pytest.mark.parametrize("place", PLACES)
def test_a_tensor_is_found_wherever_it_stands(place: str) -> None:
    """And one that says that its data is here is none in another file."""
    made = PLACES[place]

    assert is_elsewhere(made(elsewhere()).SerializeToString())
    assert not is_elsewhere(made(here()).SerializeToString())
    assert locations(made(elsewhere()).SerializeToString()) == {WEIGHTS}
    assert locations(made(here()).SerializeToString()) == set()


# Fields of a tensor that say `data_location: EXTERNAL`, as no writer writes them and every reader reads them.
SPELLINGS = {
    "plain": b"\x70\x01",
    "a number with more bytes than it needs": b"\x70\x81\x80\x80\x80\x00",
    "a tag with more bytes than it needs": b"\xf0\x80\x00\x01",
    "a number of more than 32 bits": b"\x70\x81\x80\x80\x80\x80\x20",
    "behind a group": b"\x8b\x06\x93\x06\x94\x06\x70\x05\x8c\x06\x70\x01",
    "behind the other value": b"\x70\x00\x70\x01",
    "before a value that is none": b"\x70\x01\x70\x07",
    "behind a number with a tag of two bytes": b"\x80\x06\x01\x80\x06\x01\x70\x01",
    "behind many numbers": b"\x28\x01" * 3 + b"\x28\x80\x01" + b"\x70\x01",
    "behind floats": b"\x25\x70\x01\x70\x01" * 3 + b"\x70\x01",
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_however_it_is_spelled_it_is_found(spelling: str) -> None:
    """What counts is what a reader of protobuf makes of it."""
    model = in_pieces(SPELLINGS[spelling])

    assert onnx.load_from_string(model).graph.initializer[0].data_location == TensorProto.EXTERNAL
    assert is_elsewhere(model)


def test_a_tag_is_cut_to_32_bits() -> None:
    """As by the reader in C++; those in Python refuse the file."""
    assert is_elsewhere(in_pieces(b"\xf0\x80\x80\x80\x70\x01"))


NOT_SAID = {
    "inside a group": b"\x8b\x06\x70\x01\x8c\x06",
    "inside bytes": b"\x4a\x02\x70\x01",
    "a float": b"\x75\x01\x00\x00\x00",
    "packed": b"\x72\x01\x01",
    "the other value": b"\x70\x00",
    "a value that is none": b"\x70\x02",
}


@pytest.mark.parametrize("spelling", NOT_SAID)
def test_what_only_looks_like_it_is_nothing(spelling: str) -> None:
    """A pinned model is not refused for the bytes of its weights or names."""
    model = in_pieces(NOT_SAID[spelling])

    assert onnx.load_from_string(model).graph.initializer[0].data_location == TensorProto.DEFAULT
    assert not is_elsewhere(model)


def in_pieces(tensor: bytes) -> bytes:
    """A model whose graph comes in two pieces, of which the second has one tensor."""
    name = framed(7, framed(2, b"g"))
    return name + framed(7, framed(5, tensor))


def framed(number: int, content: bytes) -> bytes:
    """A field of a length."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value: int) -> bytes:
    head = bytearray()
    while value > 0x7F:
        head.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*head, value])


def test_a_file_may_be_nested_deeper_than_python_calls() -> None:
    """A graph in an attribute of a node of a graph, thousands of times."""
    graph = framed(5, b"\x70\x01")
    for _ in range(5_000):
        graph = framed(1, framed(5, framed(6, graph)))

    assert is_elsewhere(framed(7, graph))


@pytest.mark.parametrize(
    "model", [b"", b"\xff" * 20, b"\x3a\x7f", b"<html>", b"\x0b", b"\x0c", b"\x07", b"\x3a", b"\x25\x01"]
)
def test_what_is_no_model_has_no_weights_elsewhere(model: bytes) -> None:
    """ONNX Runtime says what it is."""
    assert not is_elsewhere(model)
    assert locations(model + b"location") == set()


def test_a_tensor_that_names_no_file_has_none() -> None:
    """Though the word stands in the model. ONNX Runtime refuses it."""
    tensor = TensorProto(name="location", dims=[4], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="length", value="16")

    assert locations(model_with(tensors=(tensor,)).SerializeToString()) == set()


def test_the_file_is_known_in_whatever_order_it_is_said() -> None:
    """As writers other than onnx do."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in (("length", "16"), ("location", WEIGHTS)):
        tensor.external_data.add(key=key, value=value)

    assert locations(value_first(model_with(tensors=(tensor,)).SerializeToString())) == {WEIGHTS}


# ONNX 1.19 knows fields up to 26.
NUMBERS = st.integers(100, 400)
UNKNOWN = st.lists(
    st.one_of(
        st.builds(lambda number, value: varint(number << 3) + varint(value), NUMBERS, st.integers(0, 300)),
        st.builds(lambda number, bits: varint(number << 3 | 5) + bits, NUMBERS, st.binary(min_size=4, max_size=4)),
        st.builds(framed, NUMBERS, st.binary(max_size=200)),
        st.builds(lambda number: varint(number << 3 | 3) + b"\x70\x01" + varint(number << 3 | 4), NUMBERS),
    ),
    max_size=3,
).map(b"".join)


@st.composite
def hidden(draw: st.DrawFn) -> bytes:
    """A model with one tensor that is elsewhere, at some place, and fields that no reader knows around each message."""
    kind, way = _MessageType.MODEL, []
    while kind is not _MessageType.TENSOR:
        number, kind = draw(st.sampled_from(sorted(_INNER[kind].items(), key=lambda item: item[0])))
        way.append(number)
    model = draw(UNKNOWN) + b"\x70\x01" + draw(UNKNOWN)
    for number in reversed(way):
        model = draw(UNKNOWN) + framed(number, model) + draw(UNKNOWN)
    return model


@given(hidden())
def test_a_tensor_is_found_in_whatever_stands_around_it(model: bytes) -> None:
    """As by a reader that knows all of ONNX."""
    (tensor,) = tensors(onnx.load_from_string(model))

    assert tensor.data_location == TensorProto.EXTERNAL
    assert is_elsewhere(model)
    assert locations(model) == set(), "it names no file"
    assert not is_elsewhere(model.replace(b"\x70\x01", b"\x70\x00"))


def tensors(message: object) -> Iterator[TensorProto]:
    """All within a message, by its own description."""
    for field, value in message.ListFields():  # type: ignore[attr-defined]  # a message: protobuf gives no types
        if field.message_type is not None:
            for one in value if field.is_repeated else [value]:
                yield from [one] if isinstance(one, TensorProto) else tensors(one)


def value_first(model: bytes) -> bytes:
    """The same model, with the value of each `location` written before its key."""
    key, value = framed(1, b"location"), framed(2, WEIGHTS.encode())
    assert key + value in model
    return model.replace(key + value, value + key)


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for a model, while other weights of its name lie in the current directory."""
    (tmp_path / "current").mkdir()
    (tmp_path / "model").mkdir()
    np.full(4, 7, "<f4").tofile(tmp_path / "current" / WEIGHTS)
    monkeypatch.chdir(tmp_path / "current")
    return tmp_path / "model" / "model.onnx"


def test_a_pin_is_not_evaded_by_the_order_of_fields(planted: Path) -> None:
    """The branch of an `If` took its weights from the current directory."""
    planted.write_bytes(value_first(in_branch(elsewhere()).SerializeToString()))
    pin = "0" * 64

    with pytest.raises(BadConfiguration, match="another model than the one pinned"):
        load(ModelSettings(path=planted, device="cpu", sha256=pin), max_batch_size=2)
    pin = hashlib.sha256(planted.read_bytes()).hexdigest()
    with pytest.raises(BadConfiguration, match="its weights lie in other files"):
        load(ModelSettings(path=planted, device="cpu", sha256=pin), max_batch_size=2)


def test_weights_of_the_current_directory_are_never_a_models(planted: Path) -> None:
    """Those beside the model are, and where they are missing the model is refused."""
    planted.write_bytes(value_first(in_branch(elsewhere()).SerializeToString()))
    settings = ModelSettings(path=planted, device="cpu")

    with pytest.raises(BadConfiguration, match="cannot load the model"):
        load(settings, max_batch_size=2)
    np.full(4, 3, "<f4").tofile(planted.parent / WEIGHTS)
    model = load(settings, max_batch_size=2)

    answers = model.run({"x": np.zeros((1, 4), np.float32)})
    assert not isinstance(answers, RunFailure)
    assert answers[0].tolist() == [[3.0] * 4]


@pytest.mark.parametrize("place", ["initializer", "constant", "branch", "sparse constant"])
def test_a_model_of_bytes_reads_no_file_at_all(place: str, planted: Path) -> None:
    """Should one ever get by: the session finds nothing where it looks."""
    del planted
    model = PLACES[place](elsewhere())
    if place != "branch":
        model.graph.node.append(helper.make_node("Add", ["x", "w"], ["y"]))

    with pytest.raises(BadConfiguration, match="cannot load the model"):
        open_cpu(model.SerializeToString(), 1, "for the test")
