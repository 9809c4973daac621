"""Takes `ZipMap` out of an ONNX classifier, so that its probabilities are a tensor [batch, classes], and no maps.

    before   ZipMap(scores) -> probabilities, a map of class and probability for each row
    after    Identity(scores) -> probabilities

Converters of scikit-learn, LightGBM and CatBoost put that node behind a classifier, unless told otherwise. Each map has
all classes in one order, and no answer can hold one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from worker.inference.model_file import LOCATION, LoadableModel, small_content
from worker.inference.onnx_fields import Graph, Model, Node, fields_of, texts_of, with_graph
from worker.inference.protobuf_fields import WireField, fields, message, number

_FLOAT = 1  # the type of all that it takes
_LABELS = (8, 9)  # the fields of an attribute with whole numbers, one each, and with texts


def without_zip_maps(loadable: LoadableModel) -> LoadableModel:
    """The model without such nodes; as it is if it has none, is large, or has weights in other files."""
    try:
        content = small_content(loadable)
        model = [] if content is None else list(fields(content))
        graph = next(fields_of(model, Model.GRAPH), None)
        if graph is None or not any(map(_is_of_classifiers, model)):
            return loadable
        parts = _changed(list(fields(graph.content)))
    except (OSError, ValueError, IndexError):  # the session says what is wrong with it
        return loadable
    if not parts:
        return loadable
    changed = with_graph(model, parts)
    return loadable if LOCATION.search(changed) else loadable._replace(model=changed)


def _is_of_classifiers(field: WireField) -> bool:
    """True if this field of a model names the operators of classifiers. Others are not read further."""
    return field.number == Model.OPSETS and texts_of(fields(field.content), 1) == ["ai.onnx.ml"]


def _changed(graph: Sequence[WireField]) -> Sequence[bytes | memoryview]:
    """The fields of the graph; empty if it has no such node."""
    nodes = {at: list(fields(each.content)) for at, each in enumerate(graph) if each.number == Graph.NODE}
    zipped = {at: node for at, node in nodes.items() if texts_of(node, Node.OPERATOR) == ["ZipMap"]}
    names = {name: _classes(node) for node in zipped.values() for name in texts_of(node, Node.OUTPUT)}
    if not zipped:
        return ()
    return [
        _identity(zipped[at]) if at in zipped else _output(each, names) if each.number == Graph.OUTPUT else each.whole
        for at, each in enumerate(graph)
    ]


def _identity(node: Sequence[WireField]) -> bytes:
    kept = [each.whole for each in node if each.number in (Node.INPUT, Node.OUTPUT)]
    return message(Graph.NODE, *kept, message(Node.OPERATOR, "Identity"))


def _classes(node: Sequence[WireField]) -> int:
    """The number of the classes that it names."""
    attributes = [list(fields(each.content)) for each in fields_of(node, Node.ATTRIBUTE)]
    return sum(each.number in _LABELS for attribute in attributes for each in attribute)


def _output(output: WireField, names: Mapping[str, int]) -> bytes | memoryview:
    """The output, as a tensor of any number of rows if it has one of these names, with a column for each class."""
    [name] = texts_of(fields(output.content), 1)
    if name not in names:
        return output.whole
    shape = message(2, message(1), message(1, number(1, names[name])))
    return message(Graph.OUTPUT, message(1, name), message(2, message(1, number(1, _FLOAT), shape)))
