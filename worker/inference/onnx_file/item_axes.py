"""Outputs whose first axis counts items, as an operator found them, and not the rows that went in.

Each output is followed backwards along its first axis, through the operators that keep it, to one that makes as many
items as it finds. An operator inside that no output's first axis comes from, as for a mask that is scattered back into
the rows, says nothing. Subgraphs and functions are not looked into. Owns nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from worker.inference.onnx_file.graph import GRAPH, LARGEST, NODES, Span, inside, text_of
from worker.inference.onnx_file.protobuf_fields import VARINT, Malformed, fields
from worker.inference.onnx_file.reading import Graph, content_of

ITEM_MAKERS = frozenset({"Compress", "NonZero", "NonMaxSuppression", "Unique", "StringSplit"})

# Field numbers of a node, and of an attribute.
_INPUTS, _OUTPUTS, _OPERATOR, _ATTRIBUTES = 1, 2, 4, 5
_NAME, _INT = 1, 3

# Operators whose first axis is that of all their inputs, or of another than the first one. Others keep the first one's.
_OF_ALL = frozenset({"Add", "And", "Concat", "Div", "Equal", "Max", "Min", "Mul", "Or", "Pow", "Sub", "Sum", "Where"})
_OF_SECOND = frozenset({"GatherElements", "GatherND"})
_OF_NONE = frozenset({"ConstantOfShape", "Range", "Shape", "Size"})
_FLATTENING = frozenset({"Flatten", "Reshape"})
_INVERSE = 2  # output of Unique that is as long as its input


class _Node(NamedTuple):
    operator: str
    inputs: Sequence[str]
    axis: int  # its attribute; 0 where it has none
    output: int  # the number of the one asked for


def item_makers(graph: Graph, outputs: Sequence[str]) -> Mapping[str, str]:
    """The operator that makes the items on the first axis of an output, by the output's name."""
    content = content_of(graph)
    try:
        makers = dict(_makers(content))
    except Malformed:
        return {}
    found = {output: _maker(makers, output) for output in outputs}
    return {output: operator for output, operator in found.items() if operator is not None}


def _makers(content: bytes) -> Iterator[tuple[str, _Node]]:
    """The node of each value, by its name."""
    for graph in inside(content, (0, len(content)), GRAPH):
        for span in inside(content, graph, NODES):
            operator = "".join(text_of(content, at) for at in inside(content, span, _OPERATOR))
            inputs = [text_of(content, at) for at in inside(content, span, _INPUTS)]
            axes = [
                _integer(content, at)
                for at in inside(content, span, _ATTRIBUTES)
                if [text_of(content, name) for name in inside(content, at, _NAME)] == ["axis"]
            ]
            for number, at in enumerate(inside(content, span, _OUTPUTS)):
                yield text_of(content, at), _Node(operator, inputs, axes[0] if axes else 0, number)


def _integer(content: bytes, attribute: Span) -> int:
    """Its value; -1 for any below 0. Some exporters leave 0 out."""
    values = [value for at, kind, value, _, _ in fields(content, *attribute) if at == _INT and kind == VARINT]
    return -1 if values and values[-1] > LARGEST else next(iter(values), 0)


def _maker(makers: Mapping[str, _Node], output: str) -> str | None:
    """What makes the items on this output's first axis; None where they are rows, as far as can be followed."""
    seen = set()
    ahead = [(output, False)]  # values, and whether what is behind them was flattened into their first axis
    while ahead:
        value, is_flat = ahead.pop()
        node = makers.get(value)
        if node is None or (value, is_flat) in seen:
            continue
        seen.add((value, is_flat))
        if _makes_items(node, is_flat=is_flat):
            return node.operator
        if node.operator == "Reshape" and (sized_by := _sized_by(makers, node)) is not None:
            ahead.append((sized_by, False))
        else:
            ahead += [(name, is_flat or node.operator in _FLATTENING) for name in _followed(node)]
    return None


def _sized_by(makers: Mapping[str, _Node], reshape: _Node) -> str | None:
    """The value whose size the first axis gets (`.view(x.size(0), …)`); None where a constant says how long it is."""
    ahead = reshape.inputs[1:2]
    while ahead and (node := makers.get(ahead[0])) is not None:
        ahead = node.inputs[:1]
        if node.operator == "Shape":
            return ahead[0]
    return None


def _makes_items(node: _Node, *, is_flat: bool) -> bool:
    if node.operator == "StringSplit":  # as many parts as the text with the most has, behind the rows
        return is_flat
    if node.operator == "Compress":
        return is_flat or node.axis == 0
    if node.operator == "Unique":
        return node.axis == 0 and node.output != _INVERSE
    return node.operator in ITEM_MAKERS


def _followed(node: _Node) -> Sequence[str]:
    """The inputs whose first axis is the node's."""
    if node.operator in _OF_NONE:
        return ()
    if node.operator in _OF_ALL:
        return node.inputs
    is_by_second = node.operator in _OF_SECOND or (node.operator == "Gather" and node.axis == 0)
    return node.inputs[1:2] if is_by_second else node.inputs[:1]
