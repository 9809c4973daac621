"""Changes an ONNX model so that columns of one datatype come as one block, and are taken apart in the graph.

    before   a, b, c, x [batch, 1] each     Concat(a, b, x)     Cast(c)
    after    block [3, batch], x [batch, 1]
             Split(Transpose(block)) -> ab [batch, 2], c [batch, 1]     Concat(ab, x)     Cast(c)

Columns that a `Concat` joins as neighbours stay together, as they are in most models of tables. Every other node, and
every tensor, keeps its bytes. A block has one column in each of its rows, because it is joined faster so.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from struct import pack
from typing import NamedTuple

from worker.inference.onnx_fields import Graph, Model, Node, fields_of, texts_of, with_graph
from worker.inference.protobuf_fields import WireField, fields, message, number, text

# The fewest columns that are joined: at a batch of 64, 8 columns take 26 µs of CPU with a block or without, 16 take 28
# instead of 39, 50 take 37 instead of 118, 500 take 150 instead of 2,600. Where no `Concat` takes them, 16 take 47 both
# ways, 50 take 97 instead of 140, 500 take 700 instead of 3,500 (ONNX Runtime 1.31, 2026-11).
FEWEST = 16
# `Split` takes its sizes as an input since this version of ONNX's operators (2020).
OPSET = 13

# Names of ONNX Runtime's types by the numbers of ONNX. Texts are left alone: to copy them takes as long as was gained.
_TYPES = {
    1: "tensor(float)",
    2: "tensor(uint8)",
    3: "tensor(int8)",
    4: "tensor(uint16)",
    5: "tensor(int16)",
    6: "tensor(int32)",
    7: "tensor(int64)",
    9: "tensor(bool)",
    10: "tensor(float16)",
    11: "tensor(double)",
    12: "tensor(uint32)",
    13: "tensor(uint64)",
}
_INT64 = 7
_INT = 2  # the kind of an attribute
_HAVE_GRAPHS = frozenset({"If", "Loop", "Scan", "SequenceMap"})


class Shown(NamedTuple):
    """An input as ONNX Runtime shows it."""

    name: str
    type: str
    shape: list[int | str | None]


class Joined(NamedTuple):
    """An input that is a block: its name, and the names of the columns in its rows."""

    name: str
    columns: Sequence[str]


class Blocks(NamedTuple):
    """A changed model: its bytes, its blocks, and the inputs that these replace, by name, in the file's order of all
    inputs."""

    model: bytes
    joined: Sequence[Joined]
    inputs: Mapping[str, Shown | None]  # None: unchanged


class _Column(NamedTuple):
    """An input of one element a row. `batch` is ONNX's message of its first axis."""

    shown: Shown
    element: int
    batch: bytes


def in_blocks(content: memoryview) -> Blocks | None:
    """The model with blocks in the place of columns; None if it has too few of one kind, or is an odd one.

    Raises `ValueError` or `IndexError` if the content is no model.
    """
    model = list(fields(content))
    graphs = [field.content for field in fields_of(model, Model.GRAPH)]
    if len(graphs) != 1 or _opset(model) < OPSET:
        return None
    graph = list(fields(graphs[0]))
    inputs = dict(map(_input, fields_of(graph, Graph.INPUT)))
    if sum(column is not None for column in inputs.values()) < FEWEST:
        return None
    fed = {_name(field.content, 8) for field in fields_of(graph, Graph.INITIALIZER)}
    kinds: dict[tuple[int, bytes], list[str]] = {}
    for name, column in inputs.items():
        if column is not None and name not in fed:
            kinds.setdefault((column.element, column.batch), []).append(name)
    groups = [(kind, names) for kind, names in kinds.items() if len(names) >= FEWEST]
    is_sparse = any(fields_of(graph, Graph.SPARSE_INITIALIZER))
    if not groups or is_sparse or len(inputs) < len(list(fields_of(graph, Graph.INPUT))):
        return None
    return _changed(model, graph, inputs, groups, content)


def _changed(
    model: Sequence[WireField],
    graph: Sequence[WireField],
    inputs: Mapping[str, _Column | None],
    groups: Sequence[tuple[tuple[int, bytes], Sequence[str]]],
    content: memoryview,
) -> Blocks:
    prefix = "column_block"
    while re.search(prefix.encode(), content):
        prefix += "_"
    group_of = {name: at for at, (_, names) in enumerate(groups) for name in names}
    nodes, pieces = _joined_in_nodes(graph, group_of, prefix)
    own: list[bytes] = []
    joined: list[Joined] = []
    for at, ((element, batch), names) in enumerate(groups):
        block = f"{prefix}{at}"
        together = {name for some in pieces[at].values() for name in some}
        split = pieces[at] | {name: [name] for name in names if name not in together}
        columns = [name for some in split.values() for name in some]
        own += _block(block, element, batch, len(columns), {name: len(some) for name, some in split.items()})
        joined.append(Joined(block, columns))
    kept = [
        field.whole
        for field in graph
        if field.number != Graph.NODE and not (field.number == Graph.INPUT and _name(field.content, 1) in group_of)
    ]
    shown = {name: column.shown if name in group_of and column else None for name, column in inputs.items()}
    return Blocks(with_graph(model, [*own, *nodes, *kept]), joined, shown)


def _joined_in_nodes(
    graph: Sequence[WireField], group_of: Mapping[str, int], prefix: str
) -> tuple[list[bytes | memoryview], list[dict[str, Sequence[str]]]]:
    """The nodes, and for each group the columns that a node now takes as one, by the name of this."""
    read = [(field, list(fields(field.content))) for field in fields_of(graph, Graph.NODE)]
    taken = Counter(text(each.content) for _, node in read for each in node if each.number == Node.INPUT)
    taken.update(_name(field.content, 1) for field in fields_of(graph, Graph.OUTPUT))
    # A graph in a node may take a column, too.
    has_graphs = any(_name(field.content, Node.OPERATOR) in _HAVE_GRAPHS for field, _ in read)
    pieces: list[dict[str, Sequence[str]]] = [{} for _ in set(group_of.values())]
    if has_graphs:
        return [field.whole for field, _ in read], pieces
    nodes: list[bytes | memoryview] = []
    for field, node in read:
        if not _joins_columns(node):
            nodes.append(field.whole)
            continue
        names = texts_of(node, Node.INPUT)
        inputs: list[str] = []
        for group, run in groupby(names, lambda name: group_of.get(name) if taken[name] == 1 else None):
            some = list(run)
            if group is None or len(some) == 1:
                inputs += some
                continue
            piece = f"{prefix}{group}_{len(pieces[group])}"
            pieces[group][piece] = some
            inputs.append(piece)
        rest = [each.whole for each in node if each.number != Node.INPUT]
        nodes.append(message(Graph.NODE, *[message(Node.INPUT, name) for name in inputs], *rest))
    return nodes, pieces


def _joins_columns(node: Sequence[WireField]) -> bool:
    """True for `Concat` along the second axis."""
    named = {each.number: text(each.content) for each in node if each.number in (Node.OPERATOR, Node.DOMAIN)}
    if named.get(Node.OPERATOR) != "Concat" or named.get(Node.DOMAIN, "") not in ("", "ai.onnx"):
        return False
    axes = [each.value for field in fields_of(node, Node.ATTRIBUTE) for each in fields_of(fields(field.content), 3)]
    return axes in ([1], [2**64 - 1])  # it is the one attribute; the second is -1


def _block(name: str, element: int, batch: bytes, width: int, pieces: Mapping[str, int]) -> Iterator[bytes]:
    """Fields of a graph: the input, and the nodes that take it apart into pieces of so many columns."""
    turned, sizes = f"{name}_turned", f"{name}_sizes"
    shape = message(2, message(1, number(1, width)), message(1, batch))
    yield message(Graph.INPUT, message(1, name), message(2, message(1, number(1, element), shape)))
    counts = pack(f"<{len(pieces)}q", *pieces.values())
    yield message(Graph.INITIALIZER, number(1, len(pieces)), number(2, _INT64), message(8, sizes), message(9, counts))
    operator = message(Node.OPERATOR, "Transpose")
    yield message(Graph.NODE, message(Node.INPUT, name), message(Node.OUTPUT, turned), operator)
    yield message(
        Graph.NODE,
        message(Node.INPUT, turned),
        message(Node.INPUT, sizes),
        *[message(Node.OUTPUT, piece) for piece in pieces],
        message(Node.OPERATOR, "Split"),
        message(Node.ATTRIBUTE, message(1, "axis"), number(3, 1), number(20, _INT)),
    )


def _input(field: WireField) -> tuple[str, _Column | None]:
    """An input's name, and the input if it has one element a row."""
    name = _name(field.content, 1)
    element, dims = 0, list[memoryview]()
    for kind in fields_of(fields(field.content), 2):
        for tensor in fields_of(fields(kind.content), 1):
            for each in fields(tensor.content):
                if each.number == 1:
                    element = each.value
                elif each.number == 2:
                    dims += [dim.content for dim in fields_of(fields(each.content), 1)]
    if element not in _TYPES or len(dims) != 2 or _size(dims[1]) != 1 or isinstance(batch := _size(dims[0]), int):
        return name, None
    return name, _Column(Shown(name, _TYPES[element], [batch, 1]), element, bytes(dims[0]))


def _size(dim: memoryview) -> int | str | None:
    """The size of an axis, or its name; None if it has neither."""
    size: int | str | None = None
    for each in fields(dim):
        if each.number == 1:
            size = each.value
        elif each.number == 2:
            size = text(each.content) or None
    return size


def _opset(model: Sequence[WireField]) -> int:
    """The version of ONNX's operators that the model names; 0 if none."""
    for field in fields_of(model, Model.OPSETS):
        if _name(field.content, 1) in ("", "ai.onnx"):
            return max([each.value for each in fields_of(fields(field.content), 2)], default=0)
    return 0


def _name(content: memoryview, number: int) -> str:
    """The text of this field of a message; empty without one."""
    return next(iter(texts_of(fields(content), number)), "")
