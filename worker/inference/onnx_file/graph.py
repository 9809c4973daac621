"""What only the file says of a model, and ONNX Runtime does not: inputs without a shape, operators by name.

A model is one protobuf message, read here field by field, without the package `onnx`. Of a file that is no such message
(ONNX Runtime's own format) nothing is found. Owns nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from worker.inference.onnx_file.protobuf_fields import LENGTH, VARINT, Malformed, fields
from worker.inference.onnx_file.reading import Graph, content_of

# Field numbers of onnx.proto: in the model, the graph, a node, an attribute, a function; of an input and its type.
GRAPH, _FUNCTIONS = 7, 25
NODES, _INPUTS = 1, 11
_OPERATOR, _ATTRIBUTES = 4, 5
_SUBGRAPH, _SUBGRAPHS = 6, 11
_FUNCTION_NODES = 7
_NAME, _TYPE, _TENSOR, _ELEMENT, _SHAPE, _DIM, _LENGTH = 1, 2, 1, 1, 2, 1, 1

LARGEST = 2**63 - 1  # of a dimension
Span = tuple[int, int]  # where a message begins and ends


class DeclaredInput(NamedTuple):
    """What the file says of an input: the number of its datatype, 0 where it is no tensor, and its dimensions.

    None for the dimensions: it does not say how many; for one of them: it is dynamic.
    """

    name: str
    datatype: int
    dims: tuple[int | None, ...] | None


def declared_inputs(graph: Graph) -> Mapping[str, DeclaredInput]:
    """By their names."""
    content = content_of(graph)
    try:
        return {declared.name: declared for declared in _declared(content)}
    except Malformed:
        return {}


def unranked_inputs(graph: Graph) -> frozenset[str]:
    """Inputs of which the file does not say how many dimensions they have. ONNX Runtime shows them as scalars."""
    return frozenset(name for name, declared in declared_inputs(graph).items() if declared.dims is None)


def operators(graph: Graph, wanted: frozenset[str]) -> frozenset[str]:
    """Which of these operators the model has, in its functions and the branches of its nodes too."""
    content = content_of(graph)
    try:
        return wanted & frozenset(_operators(content, [name.encode() for name in wanted]))
    except Malformed:
        return frozenset()


def _declared(content: bytes) -> Iterator[DeclaredInput]:
    for graph in inside(content, (0, len(content)), GRAPH):
        for declared in inside(content, graph, _INPUTS):
            name = "".join(text_of(content, span) for span in inside(content, declared, _NAME))
            tensors = [at for kind in inside(content, declared, _TYPE) for at in inside(content, kind, _TENSOR)]
            shapes = [shape for tensor in tensors for shape in inside(content, tensor, _SHAPE)]
            datatype = next((_number(content, tensor, _ELEMENT) for tensor in tensors), None) or 0
            dims = tuple(_number(content, dim, _LENGTH) for dim in inside(content, shapes[0], _DIM)) if shapes else None
            yield DeclaredInput(name, datatype, dims)


def _operators(content: bytes, names: Sequence[bytes]) -> Iterator[str]:
    whole = (0, len(content))
    for number, nodes in ((GRAPH, NODES), (_FUNCTIONS, _FUNCTION_NODES)):
        for holder in inside(content, whole, number):
            yield from _of_nodes(content, holder, nodes, names)


def _of_nodes(content: bytes, holder: Span, number: int, names: Sequence[bytes]) -> Iterator[str]:
    for node in inside(content, holder, number):
        # Nearly no node has any of these bytes, and to look for them takes less than to read its fields.
        if any(content.find(name, *node) >= 0 for name in names):
            yield from (text_of(content, operator) for operator in inside(content, node, _OPERATOR))
            for attribute in inside(content, node, _ATTRIBUTES):
                for kind in (_SUBGRAPH, _SUBGRAPHS):
                    for graph in inside(content, attribute, kind):
                        yield from _of_nodes(content, graph, NODES, names)


def inside(content: bytes, message: Span, number: int) -> Iterator[Span]:
    """The fields of that number that have a length."""
    return ((begin, end) for at, kind, _, begin, end in fields(content, *message) if at == number and kind == LENGTH)


def _number(content: bytes, message: Span, number: int) -> int | None:
    """The field of that number, if there is one. Some exporters write -1 for a dimension that they do not know."""
    found = [value for at, kind, value, _, _ in fields(content, *message) if at == number and kind == VARINT]
    return found[-1] if found and found[-1] <= LARGEST else None


def text_of(content: bytes, span: Span) -> str:
    return content[slice(*span)].decode(errors="replace")
