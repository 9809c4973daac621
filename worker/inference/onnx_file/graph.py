"""What only the file says of a model, and ONNX Runtime does not: inputs without a shape, operators by name.

A model is one protobuf message, read here field by field, without the package `onnx`. Of a file that is no such message
(ONNX Runtime's own format) nothing is found. Owns nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from worker.inference.onnx_file.protobuf_fields import LENGTH, Malformed, fields
from worker.inference.onnx_file.reading import Graph

# Field numbers of onnx.proto: in the model, the graph, a node, an attribute, a function; of an input and its type.
_GRAPH, _FUNCTIONS = 7, 25
_NODES, _INPUTS = 1, 11
_OPERATOR, _ATTRIBUTES = 4, 5
_SUBGRAPH, _SUBGRAPHS = 6, 11
_FUNCTION_NODES = 7
_NAME, _TYPE, _TENSOR, _SHAPE = 1, 2, 1, 2

Span = tuple[int, int]  # where a message begins and ends


def unranked_inputs(graph: Graph) -> frozenset[str]:
    """Inputs of which the file does not say how many dimensions they have. ONNX Runtime shows them as scalars."""
    content = _content(graph)
    try:
        return frozenset(_unranked(content))
    except Malformed:
        return frozenset()


def operators(graph: Graph, wanted: frozenset[str]) -> frozenset[str]:
    """Which of these operators the model has, in its functions and the branches of its nodes too."""
    content = _content(graph)
    try:
        return wanted & frozenset(_operators(content, [name.encode() for name in wanted]))
    except Malformed:
        return frozenset()


def _content(graph: Graph) -> bytes:
    return Path(graph).read_bytes() if isinstance(graph, str) else graph


def _unranked(content: bytes) -> Iterator[str]:
    for graph in _inside(content, (0, len(content)), _GRAPH):
        for declared in _inside(content, graph, _INPUTS):
            if not _has_shape(content, declared):
                yield from (_text(content, name) for name in _inside(content, declared, _NAME))


def _has_shape(content: bytes, declared: Span) -> bool:
    kinds = (tensor for kind in _inside(content, declared, _TYPE) for tensor in _inside(content, kind, _TENSOR))
    return any(True for tensor in kinds for _ in _inside(content, tensor, _SHAPE))


def _operators(content: bytes, names: Sequence[bytes]) -> Iterator[str]:
    whole = (0, len(content))
    for number, nodes in ((_GRAPH, _NODES), (_FUNCTIONS, _FUNCTION_NODES)):
        for holder in _inside(content, whole, number):
            yield from _of_nodes(content, holder, nodes, names)


def _of_nodes(content: bytes, holder: Span, number: int, names: Sequence[bytes]) -> Iterator[str]:
    for node in _inside(content, holder, number):
        # Nearly no node has any of these bytes, and to look for them takes less than to read its fields.
        if any(content.find(name, *node) >= 0 for name in names):
            yield from (_text(content, operator) for operator in _inside(content, node, _OPERATOR))
            for attribute in _inside(content, node, _ATTRIBUTES):
                for kind in (_SUBGRAPH, _SUBGRAPHS):
                    for graph in _inside(content, attribute, kind):
                        yield from _of_nodes(content, graph, _NODES, names)


def _inside(content: bytes, message: Span, number: int) -> Iterator[Span]:
    """The fields of that number that have a length."""
    return ((begin, end) for at, kind, _, begin, end in fields(content, *message) if at == number and kind == LENGTH)


def _text(content: bytes, span: Span) -> str:
    return content[slice(*span)].decode(errors="replace")
