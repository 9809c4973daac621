"""Reads Protobuf records: the library parses the message, and a function made for its type takes the wanted fields.

| a field                                           | is                                                    |
|---|---|
| with presence (`optional`, `oneof`, a message)    | missing unless it is set                              |
| without                                           | its default, 0 or an empty text, where it is not set  |
| an enum                                           | the name; a number that has no name is the number     |
| `google.protobuf.Timestamp`                       | an instant, cut to microseconds                       |
| `google.protobuf.Int64Value` and the other boxes  | the value in the box                                  |
| `confluent.type.Decimal`, `google.type.Decimal`   | a decimal                                             |

The library itself bounds how deeply messages nest (100), and refuses texts that are not UTF-8. Those of proto2 it gives
as bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from decimal import Decimal, InvalidOperation
from operator import attrgetter, itemgetter
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from worker.codecs.records.avro_logical import decimal_of, instant_of
from worker.codecs.records.avro_schema import called
from worker.codecs.records.avro_values import number
from worker.codecs.records.framing import Frame
from worker.codecs.records.protobuf_schema import ProtobufSchema
from worker.codecs.records.wanted import (
    WHOLE,
    Budget,
    Unreadable,
    Wanted,
    below,
    below_each,
    unreadable,
    wanted_of,
    within,
)
from worker.core.failures import Reject
from worker.core.schemas import RegisteredSchema

Take = Callable[[Any], Any]

# A parsed message has room for each of its fields, and takes two bytes: 40 KB of messages with 1,000 fields are 160 MB.
_MOST_PARSED = 256 * 2**20
_BYTES_OF_FIELD = 8
_DEEPEST_PLACE = 100
_MOST_DIGITS = 1_000
# Bytes in fields that the schema lacks, up to which they are judged: a MiB of them are 350,000, which take 0.4 s.
_MOST_UNKNOWN = 65_536
_ERRORS = (Unreadable, OverflowError, InvalidOperation)
_WHY: Mapping[type[Exception], str] = {
    OverflowError: "expected an instant of the years 1 to 9999",
    InvalidOperation: "expected a decimal",
}


def _why(error: Exception) -> str:
    return _WHY.get(type(error), "expected a Protobuf message")


class ProtobufRecords:
    """Reads records of one writer's schema. Pure, and not for several threads. Owns a reader for each message of it."""

    def __init__(self, schema: RegisteredSchema, wanted: Collection[tuple[str, ...]] | None) -> None:
        """Reads the fields of these paths, or the whole record. Raises `Reject` if the schema cannot be read."""
        self._name = called(schema)
        self._schema = ProtobufSchema(schema)
        self._wanted = wanted_of(wanted)
        self._budget = Budget()
        self._messages: dict[tuple[int, ...], tuple[Any, Take] | None] = {}  # None: it nests too deeply
        self._most_bytes = _MOST_PARSED // (1 + self._schema.most_fields * _BYTES_OF_FIELD // 2)

    def read(self, value: bytes, frame: Frame) -> dict[str, Any]:
        """The wanted fields of a record by name, without those that are not set. Raises `Reject`."""
        self._budget.renew()
        try:
            place, start = self._place(value, frame)
            message, take = self._message(place)
            if len(value) - start > self._most_bytes:
                raise Unreadable(f"expected at most {self._most_bytes} bytes of messages with so many fields")
            parsed = message.FromString(value[start:])
            return take(parsed if len(value) <= _MOST_UNKNOWN else _cheaply_judged(parsed))  # type: ignore[no-any-return]  # a dict
        except (DecodeError, *_ERRORS) as error:
            raise Reject(f"{unreadable(error, _why)} (Protobuf, {self._name})") from None

    def _place(self, value: bytes, frame: Frame) -> tuple[tuple[int, ...], int]:
        """The place of the message in the schema, and where it begins."""
        start = frame.start
        if frame.place:
            return _place_at(frame.place, 0)[0], start
        return ((0,), start + 1) if value[start : start + 1] == b"\0" else _place_at(value, start)

    def _message(self, place: tuple[int, ...]) -> tuple[Any, Take]:
        if place not in self._messages:
            kind = self._schema.message(place)
            try:
                self._messages[place] = (GetMessageClass(kind), _Takers(self._budget).of(kind, self._wanted))
            except RecursionError:
                self._messages[place] = None
        made = self._messages[place]
        if made is None:
            raise Unreadable("nested too deeply")
        return made


def _place_at(value: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """The indexes of a message, and where they end. A single 0 is the first message."""
    try:
        count, at = number(value, at)
        if not count:
            return (0,), at
        if not 0 < count <= _DEEPEST_PLACE:
            raise Unreadable("expected the place of a message in its schema")
        place: list[int] = []
        for _ in range(count):
            index, at = number(value, at)
            place.append(index)
    except IndexError:
        raise Unreadable("expected the place of a message in its schema") from None
    return tuple(place), at


class _Takers:
    """Makes the functions that take fields from messages, one for each type and what is wanted of it."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._made: dict[tuple[str, Wanted], Take] = {}

    def of(self, kind: Any, wanted: Wanted) -> Take:
        """The function that makes the value of a message."""
        if (value := value_of(kind)) is not None:
            return value
        key = (kind.full_name, wanted)
        if key not in self._made:
            self._made[key] = lambda message: self._made[key](message)  # noqa: PLW0108  # looked up when it runs: a message may hold its own kind
            self._made[key] = self._fields(kind, wanted)
        return self._made[key]

    def _fields(self, kind: Any, wanted: Wanted) -> Take:
        chosen = [field for field in kind.fields if below(wanted, field.name)]
        each = [(field.name, field.has_presence, self._taker(field, wanted)) for field in chosen]
        plain = [name for name, may_miss, make in each if not may_miss and make is None]
        others = [(name, may_miss, make) for name, may_miss, make in each if may_miss or make is not None]
        # It is the class's own, because a field of the message may have the name of a method.
        has = GetMessageClass(kind).HasField
        return _taking(plain, others, {field.number: field.name for field in chosen}, has)

    def _taker(self, field: Any, wanted: Wanted) -> Take | None:
        """The function that makes the value of a field; None if it is the value."""
        inner = below(wanted, field.name)
        if not field.is_repeated:
            return self._single(field, inner)
        kind = field.message_type
        if kind is None or not kind.GetOptions().map_entry:
            return _each(self._single(field, below_each(inner)), self._values(kind, below_each(inner)), self._budget)
        key, held = sorted(kind.fields, key=attrgetter("number"))
        name = _KEYS.get(key.cpp_type, str)
        return _entries(name, self._single(held, WHOLE), self._values(held.message_type, WHOLE), self._budget)

    def _single(self, field: Any, wanted: Wanted) -> Take | None:
        if field.message_type is not None:
            return self.of(field.message_type, wanted)
        if field.enum_type is not None:
            names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
            return lambda chosen: names.get(chosen, chosen)
        return None

    @staticmethod
    def _values(kind: Any, wanted: Wanted) -> int:
        """How many values of the budget an item is: a message has its fields where its bytes have none."""
        return 1 if kind is None else 1 + len([field for field in kind.fields if below(wanted, field.name)])


def _taking(
    plain: Sequence[str],
    others: Sequence[tuple[str, bool, Take | None]],
    numbers: Mapping[int, str],
    has: Callable[[Any, str], bool],
) -> Take:
    """Takes fields that are as they are, and others that may be missing, or are made of what stands there."""
    # It gives no tuple for one name, so that comes twice; `zip` leaves the second one out.
    get = attrgetter(*(plain if len(plain) > 1 else [*plain] * 2)) if plain else lambda _: ()

    def take(message: Any) -> dict[str, Any]:
        unknown = UnknownFieldSet(message)
        if len(unknown):
            _judge(unknown, numbers)
        try:
            fields = dict(zip(plain, get(message)))  # noqa: B905  # strict takes 0.2 µs
            name = ""
            for name, may_miss, make in others:
                if may_miss and not has(message, name):
                    continue
                given = getattr(message, name)
                fields[name] = given if make is None else make(given)
        except _ERRORS as error:
            raise within(f".{name}", error, _why) from None
        return fields

    return take


def _cheaply_judged(message: Any) -> Any:
    """The message; without fields that its schema lacks, where these are so many that judging them takes long."""
    kind = type(message)
    known = kind()
    kind.CopyFrom(known, message)
    kind.DiscardUnknownFields(known)
    return message if kind.ByteSize(message) - kind.ByteSize(known) <= _MOST_UNKNOWN else known


def _judge(unknown: Any, numbers: Mapping[int, str]) -> None:
    """A field that the schema has is unknown if it came as another type. By its absence it would be a default."""
    for field in unknown:
        if (name := numbers.get(field.field_number)) is not None:
            raise within(f".{name}", Unreadable("it came as another type than its schema says"), _why)


def _each(make: Take | None, values: int, budget: Budget) -> Take:
    """A slice of the library's lists is a list, in half of the time that going over them takes."""
    if make is None:
        return itemgetter(slice(None))

    def take(items: Any) -> list[Any]:
        budget.take(len(items) * values)
        return list(map(make, items[:]))

    return take


def _entries(name: Take, make: Take | None, values: int, budget: Budget) -> Take:
    def take(items: Any) -> dict[str, Any]:
        budget.take(len(items) * values)
        return {name(key): items[key] if make is None else make(items[key]) for key in items}

    return take


def _timestamp(message: Any) -> datetime:
    return instant_of(message.seconds, message.nanos // 1000)


def _decimal(message: Any) -> Decimal:
    return decimal_of(message.value, message.scale)


def _decimal_text(message: Any) -> Decimal:
    value = Decimal(message.value[:_MOST_DIGITS])
    if len(message.value) >= _MOST_DIGITS or not value.is_finite() or abs(value.adjusted()) > _MOST_DIGITS:
        raise Unreadable(f"expected a decimal of at most {_MOST_DIGITS:,} digits")
    return value


def value_of(kind: Any) -> Take | None:
    """The function that makes the value that a message of this kind means; None if it is a message.

    A publisher may have registered another message of such a name.
    """
    take, fields = _VALUES.get(kind.full_name, (None, {}))
    given = {field.name: field.type for field in kind.fields if not field.is_repeated}
    return take if fields.items() <= given.items() else None


# A field called `x` below an object is one of its keys, which are texts: as in Protobuf's JSON.
_KEYS: Mapping[int, Take] = {FieldDescriptor.CPPTYPE_BOOL: lambda key: "true" if key else "false"}
_BOXES: Mapping[str, int] = {
    "Double": FieldDescriptor.TYPE_DOUBLE,
    "Float": FieldDescriptor.TYPE_FLOAT,
    "Int64": FieldDescriptor.TYPE_INT64,
    "UInt64": FieldDescriptor.TYPE_UINT64,
    "Int32": FieldDescriptor.TYPE_INT32,
    "UInt32": FieldDescriptor.TYPE_UINT32,
    "Bool": FieldDescriptor.TYPE_BOOL,
    "String": FieldDescriptor.TYPE_STRING,
    "Bytes": FieldDescriptor.TYPE_BYTES,
}
# How each value is made, and the fields that it is made of.
_VALUES: Mapping[str, tuple[Take, Mapping[str, int]]] = {
    "google.protobuf.Timestamp": (
        _timestamp,
        {"seconds": FieldDescriptor.TYPE_INT64, "nanos": FieldDescriptor.TYPE_INT32},
    ),
    "google.type.Decimal": (_decimal_text, {"value": FieldDescriptor.TYPE_STRING}),
    "confluent.type.Decimal": (
        _decimal,
        {"value": FieldDescriptor.TYPE_BYTES, "scale": FieldDescriptor.TYPE_INT32},
    ),
    **{f"google.protobuf.{box}Value": (attrgetter("value"), {"value": kind}) for box, kind in _BOXES.items()},
}
