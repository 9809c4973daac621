"""The fields of ONNX's messages that are read or written where a model's graph is changed, and how they are found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum

from worker.inference.protobuf_fields import WireField, head, size_of, text


class Model(IntEnum):
    GRAPH = 7
    OPSETS = 8


class Graph(IntEnum):
    NODE = 1
    INITIALIZER = 5
    INPUT = 11
    OUTPUT = 12
    SPARSE_INITIALIZER = 15


class Node(IntEnum):
    INPUT = 1
    OUTPUT = 2
    OPERATOR = 4
    ATTRIBUTE = 5
    DOMAIN = 7


def fields_of(message: Iterable[WireField], number: int) -> Iterator[WireField]:
    """The fields of this number."""
    return (field for field in message if field.number == number)


def texts_of(message: Iterable[WireField], number: int) -> list[str]:
    """The texts of the fields of this number."""
    return [text(field.content) for field in message if field.number == number]


def with_graph(model: Iterable[WireField], graph: Sequence[bytes | memoryview]) -> bytes:
    """The model with these fields as its graph."""
    others = [field.whole for field in model if field.number != Model.GRAPH]
    return b"".join([*others, head(Model.GRAPH, size_of(graph)), *graph])
