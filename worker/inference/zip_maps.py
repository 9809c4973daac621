"""Takes `ZipMap` out of an ONNX classifier, so that its probabilities are a tensor [batch, classes], and no maps.

    before   ZipMap(scores) -> probabilities, a map of class and probability for each row
    after    Identity(scores) -> probabilities

Converters of scikit-learn, LightGBM and CatBoost put that node behind a classifier, unless told otherwise. Each map has
all classes in one order, and no answer can hold one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from worker.inference.model_file import LOCATION, LoadableModel, small_content
from worker.inference.protobuf_fields import WireField, fields, head, message, number, size_of, text

_FLOAT = 1  # the type of all that it takes

# Fields of ONNX's messages, by message.
_GRAPH, _OPSETS = 7, 8
_NODE, _OUTPUT = 1, 12
_NODE_INPUT, _NODE_OUTPUT, _OPERATOR = 1, 2, 4


def without_zip_maps(loadable: LoadableModel) -> LoadableModel:
    """The model without such nodes; as it is if it has none, is large, or has weights in other files."""
    try:
        content = small_content(loadable)
        model = [] if content is None else list(fields(content))
        graph = next((field for field in model if field.number == _GRAPH), None)
        if graph is None or not any(map(_is_of_classifiers, model)):
            return loadable
        parts = _changed(list(fields(graph.content)))
    except (OSError, ValueError, IndexError):  # the session says what is wrong with it
        return loadable
    others = [field.whole for field in model if field is not graph]
    changed = b"".join([*others, head(_GRAPH, size_of(parts)), *parts])
    return loadable if not parts or LOCATION.search(changed) else loadable._replace(model=changed)


def _is_of_classifiers(field: WireField) -> bool:
    """True if this field of a model names the operators of classifiers. Others are not read further."""
    return field.number == _OPSETS and _texts(fields(field.content), 1) == ["ai.onnx.ml"]


def _changed(graph: Sequence[WireField]) -> Sequence[bytes | memoryview]:
    """The fields of the graph; empty if it has no such node."""
    nodes = {at: list(fields(each.content)) for at, each in enumerate(graph) if each.number == _NODE}
    zipped = {at: node for at, node in nodes.items() if _texts(node, _OPERATOR) == ["ZipMap"]}
    names = {name for node in zipped.values() for name in _texts(node, _NODE_OUTPUT)}
    if not zipped:
        return ()
    return [
        _identity(zipped[at]) if at in zipped else _output(each, names) if each.number == _OUTPUT else each.whole
        for at, each in enumerate(graph)
    ]


def _identity(node: Sequence[WireField]) -> bytes:
    kept = [each.whole for each in node if each.number in (_NODE_INPUT, _NODE_OUTPUT)]
    return message(_NODE, *kept, message(_OPERATOR, "Identity"))


def _output(output: WireField, names: set[str]) -> bytes | memoryview:
    """The output, as a tensor of any shape if it has one of these names."""
    [name] = _texts(fields(output.content), 1)
    if name not in names:
        return output.whole
    return message(_OUTPUT, message(1, name), message(2, message(1, number(1, _FLOAT))))


def _texts(of: Iterable[WireField], wanted: int) -> list[str]:
    return [text(each.content) for each in of if each.number == wanted]
