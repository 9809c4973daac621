"""An Avro schema, made plain: full names, one definition for each named type, and no two ways to say a thing.

| a type here                                    | is |
|---|---|
| a text                                         | a primitive, or the full name of a record, an enum or a fixed |
| a list                                         | a union |
| an object                                      | an array, a map, or a type with a logical type |

A schema may be wrong in any way: its publisher registered it, and a registry need not check it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from worker.core.failures import Reject
from worker.core.schemas import RegisteredSchema

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
RECORDS = frozenset({"record", "error"})
_NAMED = RECORDS | {"enum", "fixed"}
_LOGICAL = ("logicalType", "precision", "scale")

# The errors of a schema that lacks a key, or has a value of another type, or is nested too deeply.
_MALFORMED = (LookupError, TypeError, AttributeError, ValueError, RecursionError)

Type = str | list[Any] | dict[str, Any]


class AvroSchema:
    """The types of a registered schema and of its references. Owns the definitions by full name."""

    def __init__(self, schema: RegisteredSchema) -> None:
        """Raises `Reject` if the schema is not one of a record."""
        self.named: dict[str, dict[str, Any]] = {}
        self._used: set[str] = set()
        self._values: dict[str, int] = {}
        try:
            for _, text in schema.references:
                self._plain(json.loads(text), "")
            root = self._plain(json.loads(schema.text), "")
        except _MALFORMED as error:
            raise Reject(f"{called(schema)} cannot be read as an Avro schema") from error
        if not self._used <= self.named.keys():
            raise Reject(f"{called(schema)} has no type {min(self._used - self.named.keys())}")
        if not isinstance(root, str) or self.definition(root)["type"] not in RECORDS:
            raise Reject(f"{called(schema)} is no Avro schema of a record")
        self.root = root  # a full name

    def definition(self, name: str) -> Mapping[str, Any]:
        """The definition of a named type; the primitive itself if it is one."""
        return self.named.get(name, {"type": name})

    def values_in(self, kind: Type) -> int:
        """The most values that one value of this type is made of, without items of arrays and maps in it."""
        if isinstance(kind, list):
            return max([1, *map(self.values_in, kind)])
        if not isinstance(kind, str) or kind not in self.named:
            return 1
        if kind not in self._values:
            self._values[kind] = 0  # for a record in one of its own kind
            fields = self.named[kind].get("fields", ())
            self._values[kind] = 1 + sum([self.values_in(field["type"]) for field in fields])
        return self._values[kind]

    def _plain(self, given: Any, namespace: str) -> Type:
        """The type, with its names in this namespace. Named types are defined meanwhile."""
        if isinstance(given, str):
            return given if given in PRIMITIVES else self._name(given, namespace)
        if isinstance(given, list):
            return [self._plain(each, namespace) for each in given]
        kind = given["type"]
        if isinstance(kind, str) and kind in _NAMED:
            return self._defined(kind, given, namespace)
        if kind == "array":
            return {"type": kind, "items": self._plain(given["items"], namespace)}
        if kind == "map":
            return {"type": kind, "values": self._plain(given["values"], namespace)}
        return self._with_logical(self._plain(kind, namespace), given)

    def _defined(self, kind: str, given: Mapping[str, Any], namespace: str) -> Type:
        name = self._name(given["name"], given.get("namespace", namespace))
        namespace = name.rpartition(".")[0]
        plain: dict[str, Any] = {"type": kind, "name": name}
        self.named[name] = plain
        if kind == "enum":
            plain |= {"symbols": _texts(given["symbols"]), **_default(given)}
        elif kind == "fixed":
            plain["size"] = _size(given["size"])
        else:
            plain["fields"] = [self._field(field, namespace) for field in given["fields"]]
        return self._with_logical(name, given)

    def _name(self, given: str, namespace: str | None) -> str:
        """The full name of a type that is, or will be, defined."""
        if given in PRIMITIVES or not given:
            raise ValueError("expected a name")
        name = f"{namespace}.{given}" if namespace and "." not in given else given
        self._used.add(name)
        return name

    def _field(self, given: Mapping[str, Any], namespace: str) -> dict[str, Any]:
        (name,) = _texts([given["name"]])
        return {
            "name": name,
            "type": self._with_logical(self._plain(given["type"], namespace), given),
            "aliases": _texts(given.get("aliases") or []),
            **_default(given),
        }

    @staticmethod
    def _with_logical(plain: Type, given: Mapping[str, Any]) -> Type:
        """The type with its logical type. Many write that beside `type` in a field, and not inside of it."""
        if not isinstance(plain, str) or not isinstance(given.get("logicalType"), str):
            return plain
        return {"type": plain, **{key: given[key] for key in _LOGICAL if key in given}}


def called(schema: RegisteredSchema) -> str:
    """The schema's name in a message."""
    return f"schema {schema.guid if schema.id is None else schema.id}"


def _texts(given: Iterable[Any]) -> list[str]:
    texts = list(given)
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("expected texts")
    return texts


def _default(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The default of a field or of an enum, if it has one: the reader of a value has no use for it."""
    return {"default": given["default"]} if "default" in given else {}


def _size(given: Any) -> int:
    if not isinstance(given, int) or given < 0:
        raise ValueError("expected a size")
    return given
