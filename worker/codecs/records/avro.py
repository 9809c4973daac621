"""Reads Avro records: a function is made for each type of the writer's schema, and they call one another.

    (value, at) ─▶ read of a type ─▶ (what stands there as a Python value, where the next one begins)
    (value, at) ─▶ skip of a type ─▶ where the next one begins

Fields that are not wanted are skipped. The names and types are the writer's: a field that is gone is missing, a wider
number is a number, and a renamed field is found by the alias that its schema gives it. A value may hold anything. Each
function goes forwards only, and one that finds too few bytes may go past the end: the record's end tells.

`fastavro`, in C, takes 2.0 times as long for 15 fields of which 12 are wanted, and 3.5 times when it projects them. A
record that is nested deeply enough ends its process, and it takes negative sizes and indexes for what they are not
(2026-11).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from worker.codecs.records.avro_compiled import compiled
from worker.codecs.records.avro_containers import (
    ERRORS,
    Step,
    all_of,
    array,
    array_of_numbers,
    converted,
    enum,
    fixed,
    items_skip,
    map_of,
    record,
    union,
    why,
)
from worker.codecs.records.avro_logical import converter
from worker.codecs.records.avro_schema import AvroSchema, Type, called
from worker.codecs.records.avro_values import (
    COLUMNS,
    READS,
    SIZES,
    SKIPS,
    Read,
    Skip,
    skipping,
)
from worker.codecs.records.framing import Frame
from worker.codecs.records.wanted import (
    MOST_VALUES,
    WHOLE,
    Budget,
    Wanted,
    below,
    below_each,
    is_whole,
    unreadable,
    wanted_of,
)
from worker.core.failures import Reject
from worker.core.schemas import RegisteredSchema

# Records and fields of a schema that are read by compiled functions, since compiling 300 takes up to 40 ms.
MOST_COMPILED = 300


class AvroRecords:
    """Reads records of one writer's schema. Pure, and not for several threads."""

    def __init__(self, schema: RegisteredSchema, wanted: Collection[tuple[str, ...]] | None) -> None:
        """Reads the fields of these paths, or the whole record. Raises `Reject` if the schema cannot be read."""
        self._name = called(schema)
        self._budget = Budget()
        types = AvroSchema(schema)
        try:
            if types.values_in(types.root) > MOST_VALUES:
                raise Reject(f"{self._name} has more than {MOST_VALUES:,} values in a record")
            self._read = _Readers(types, self._budget).of(types.root, wanted_of(wanted))
        except RecursionError as error:
            raise Reject(f"{self._name} cannot be read as an Avro schema") from error

    def read(self, value: bytes, frame: Frame) -> dict[str, Any]:
        """The wanted fields of a record by name, without those that its schema lacks. Raises `Reject`."""
        self._budget.renew()
        try:
            fields, end = self._read(value, frame.start)
        except ERRORS as error:
            raise Reject(f"{unreadable(error, why)} (Avro, {self._name})") from None
        if end != len(value):
            where = "goes on after" if end < len(value) else "ends before"
            raise Reject(f"the record: the value {where} it (Avro, {self._name})")
        return fields  # type: ignore[no-any-return]  # a record is read as a dict


class _Readers:
    """Makes the functions for the types of one schema. A named type has one for each set of fields wanted of it."""

    def __init__(self, types: AvroSchema, budget: Budget) -> None:
        self._types = types
        self._budget = budget
        self._reads: dict[tuple[str, Wanted], Read] = {}
        self._skips: dict[str, Skip] = {}
        self._compiled = 0  # records and fields

    def of(self, kind: Type, wanted: Wanted) -> Read:
        """The function that reads a value of this type."""
        match kind:
            case str():
                return READS.get(kind) or self._named(kind, wanted)
            case list():
                return union([self.of(branch, wanted) for branch in kind])
            case {"type": "array", "items": item}:
                if isinstance(item, str) and item in COLUMNS:
                    return array_of_numbers(COLUMNS[item], self._budget)
                return array(self.of(item, below_each(wanted)), self._types.values_in(item), self._budget)
            case {"type": "map", "values": inner}:
                return map_of(self.of(inner, WHOLE), self._types.values_in(inner), self._budget)
        plain = kind["type"]
        convert = converter(self._types.definition(plain)["type"], kind)
        read = self.of(plain, wanted)
        return read if convert is None else converted(read, convert)

    def _named(self, name: str, wanted: Wanted) -> Read:
        key = (name, wanted)
        if key not in self._reads:
            self._reads[key] = lambda value, at: self._reads[key](value, self._again(name, at))
            self._reads[key] = self._defined(self._types.named[name], wanted)
        return self._reads[key]

    def _again(self, name: str, at: int) -> int:
        """Count a record that is in one of its own kind, which the schema cannot bound."""
        self._budget.take(self._types.values_in(name))
        return at

    def _defined(self, given: Mapping[str, Any], wanted: Wanted) -> Read:
        if given["type"] == "enum":
            return enum(given["symbols"])
        if given["type"] == "fixed":
            return fixed(given["size"])
        names = {field["name"] for field in given["fields"]}
        steps: list[Step] = []
        for field in given["fields"]:
            key = _key(field, names, wanted)
            go = self.skip(field["type"]) if key is None else self.of(field["type"], below(wanted, key))
            steps.append(Step(field["name"], key, field["type"], go))
        self._compiled += 1 + len(steps)
        return compiled(steps) if self._compiled <= MOST_COMPILED else record(steps)

    def skip(self, kind: Type) -> Skip:
        """The function that goes over a value of this type."""
        match kind:
            case str():
                return SKIPS.get(kind) or self._named_skip(kind)
            case list():
                return union([self.skip(branch) for branch in kind])
            case {"type": "array", "items": item}:
                size = SIZES.get(item) if isinstance(item, str) else None
                return items_skip(self.skip(item), size, self._types.values_in(item), self._budget)
            case {"type": "map", "values": inner}:
                skip = all_of([SKIPS["string"], self.skip(inner)])
                return items_skip(skip, None, self._types.values_in(inner), self._budget)
        return self.skip(kind["type"])

    def _named_skip(self, name: str) -> Skip:
        if name not in self._skips:
            self._skips[name] = lambda value, at: self._skips[name](value, self._again(name, at))
            given = self._types.named[name]
            if given["type"] == "enum":
                self._skips[name] = SKIPS["int"]
            elif given["type"] == "fixed":
                self._skips[name] = skipping(given["size"])
            else:
                self._skips[name] = all_of([self.skip(field["type"]) for field in given["fields"]])
        return self._skips[name]


def _key(field: Mapping[str, Any], names: Collection[str], wanted: Wanted) -> str | None:
    """The name by which a field is wanted: its own, or an alias that no other field has."""
    own = field["name"]
    called_for = {path[0] for path in wanted if path}
    return next(
        (key for key in [own, *field["aliases"]] if key in called_for and (key == own or key not in names)),
        own if is_whole(wanted) else None,
    )
