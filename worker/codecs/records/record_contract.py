"""The contract of records, as a JSON Schema: the fields that a mapping reads, for those who publish them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from worker.codecs.records.answer_contract import Schema
from worker.codecs.records.paths import EACH
from worker.codecs.records.projection import REQUIRED, Wish

_ANYTHING = (Any, msgspec.Raw)


@dataclass(slots=True)
class _Place:
    """A place in the tree of fields: the wishes that end here, and the steps that go on."""

    wishes: list[Wish] = field(default_factory=list)
    steps: dict[str, _Place] = field(default_factory=dict)
    length: int | None = None  # of an array

    @property
    def kinds(self) -> list[Any]:
        """The values of records that count; empty if any value does."""
        return [kind for wish in self.wishes if wish.type is Any for kind in wish.names]

    @property
    def is_required(self) -> bool:
        is_wanted = bool(self.kinds) or any(wish.default is REQUIRED for wish in self.wishes)
        return is_wanted or EACH in self.steps or any(place.is_required for place in self.steps.values())

    @property
    def may_be_empty(self) -> bool:
        """True if no wish needs an element of the array."""
        return all(wish.fills for wish in self.wishes) and all(below.may_be_empty for below in self.steps.values())


def record_schema(fields: Iterable[Wish]) -> Schema:
    """The schema of records with these fields. They may have any others, except those that the answer adds."""
    root = _Place()
    for wish in fields:
        place = root
        for step in wish.path.steps:
            place.length = place.length or (wish.length if step == EACH else None)
            place = place.steps.setdefault(step, _Place())
        place.wishes.append(wish)
    schema: Schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object"}
    return schema | _below(root)


def _schema(place: _Place) -> Schema | bool:
    if any(wish.default is msgspec.UNSET for wish in place.wishes):
        return False
    schema = _below(place) or _of_values(place)
    return schema if place.is_required or not schema else {"anyOf": [schema, {"type": "null"}]}


def _below(place: _Place) -> Schema:
    """The schema that the steps make; empty without any."""
    if EACH in place.steps:
        least = place.length or int(not place.may_be_empty)
        bounds = {"minItems": least} if least else {}
        if place.length is not None:
            bounds["maxItems"] = place.length
        return {"type": "array", **bounds, "items": _schema(place.steps[EACH])}
    if not place.steps:
        return {}
    required = [name for name, below in place.steps.items() if below.is_required]
    properties = {name: _schema(below) for name, below in place.steps.items()}
    return {"type": "object"} | ({"required": required} if required else {}) | {"properties": properties}


def _of_values(place: _Place) -> Schema:
    """The schema of a value that ends here; empty for any. Several wishes may want it, of several types."""
    schemas: list[Schema] = [{"enum": place.kinds}] if place.kinds else []
    for wish in place.wishes:
        if wish.type not in _ANYTHING and (schema := _of_value(wish)) not in schemas:
            schemas.append(schema)
    return {"allOf": schemas} if len(schemas) > 1 else schemas[0] if schemas else {}


def _of_value(wish: Wish) -> Schema:
    """The schema of a value that msgspec judges by its type."""
    schema: Schema = msgspec.json.schema(wish.type)
    inner = schema
    for dim in wish.dims:
        inner.update({} if dim is None else {"minItems": dim, "maxItems": dim})
        inner = inner["items"]
    if wish.names and "type" in inner:
        inner["enum"] = list(wish.names)
    return schema
