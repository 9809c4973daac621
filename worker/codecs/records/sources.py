"""Sources: where the values of an input come from, as `[records.inputs]` says, and how they are converted.

| an entry                                          | is |
|---|---|
| `"amount"`                                        | a field |
| `["amount", "age_days"]`                          | a vector of fields, in this order |
| `{ value = 0.5 }`                                 | a constant |
| `{ field = "amount", default = 0 }`               | a field that may be missing or null |
| `{ field = "price", as = "decimal" }`             | a decimal, by value: a number, or a text such as `"1.10"` |
| `{ field = "price", as = "decimal", scale = 2 }`  | a decimal as Connect writes it: its digits, in base64 |
| `{ field = "created", as = "ms" }`                | an instant, in `d`, `s`, `ms` or `us` since 1970 |
| `{ field = "created", as = "hour", epoch = "s" }` | a part of an instant in UTC, which is given in seconds |
| `{ field = "is_new", as = "boolean" }`            | true and false as 1 and 0 |
| `{ field = "channel", names = ["web", "app"] }`   | the number of a name: its place, or as `{ web = 3 }` says |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from worker.codecs.records.paths import TIMESTAMP, Path, path_of
from worker.core.failures import BadConfiguration, listed

DECIMAL, BOOLEAN = "decimal", "boolean"
# Microseconds of the units in which an instant is given or wanted.
UNITS: Mapping[str, int] = {"d": 86_400_000_000, "s": 1_000_000, "ms": 1_000, "us": 1}
PARTS = ("year", "month", "day", "weekday", "hour", "minute", "second")
CONVERSIONS = (DECIMAL, BOOLEAN, *UNITS, *PARTS)
_KEYS = frozenset({"field", "default", "as", "scale", "epoch", "names"})
_HIGHEST_SCALE = 1_000  # more digits than any database takes


@dataclass(frozen=True, slots=True)
class Source:
    """One field as the source of an input's elements. `default` None: the field may not be missing.

    `conversion`: one of `CONVERSIONS`. `epoch`: the unit of an instant that is a number. `names`: the number of each
    name. `scale`: the digits behind the point of a decimal that comes as the bytes of its digits.
    """

    path: Path
    default: Any = None
    conversion: str | None = None
    epoch: str | None = None
    names: Mapping[str, int] | None = None
    scale: int | None = None

    @property
    def is_instant(self) -> bool:
        return self.conversion in UNITS or self.conversion in PARTS


@dataclass(frozen=True, slots=True)
class Constant:
    """One value for all elements of an input."""

    value: bool | int | float | str


@dataclass(frozen=True, slots=True)
class Vector:
    """Several fields, side by side."""

    sources: tuple[Source, ...]


Entry = Source | Constant | Vector


def entry_of(where: str, given: object) -> Entry:
    """The entry that a setting gives. Raises `BadConfiguration`; `where` names the setting."""
    if isinstance(given, Mapping) and "value" in given:
        value = given["value"]
        if len(given) > 1 or not isinstance(value, bool | int | float | str):
            raise BadConfiguration(f"{where}: a constant is {{ value = 0.5 }}: a number, a text or a boolean, alone")
        return Constant(value)
    if isinstance(given, list | tuple):
        if not given:
            raise BadConfiguration(f"{where}: the list of fields is empty")
        return Vector(tuple([source_of(where, each) for each in given]))
    return source_of(where, given)


def source_of(where: str, given: object) -> Source:
    """The field that a setting gives, as a path or a table. Raises `BadConfiguration`."""
    if not isinstance(given, Mapping):
        return Source(path_of(where, given))
    if unknown := [key for key in given if key not in _KEYS]:
        raise BadConfiguration(f"{where}: there is no {listed(unknown)}; a field has {', '.join(sorted(_KEYS))}")
    path = path_of(where, given.get("field"))
    default, conversion, epoch = given.get("default"), given.get("as"), given.get("epoch")
    if default is not None and not isinstance(default, bool | int | float | str):
        raise BadConfiguration(f"{where}: default must be a number, a text or a boolean")
    if conversion is not None and conversion not in CONVERSIONS:
        raise BadConfiguration(f"{where}: as must be one of {', '.join(CONVERSIONS)}")
    if epoch is None and path.steps == (TIMESTAMP,) and (conversion in UNITS or conversion in PARTS):
        epoch = "ms"  # as Kafka has it
    source = Source(path, default, conversion, epoch, _names_of(where, given.get("names")), _scale_of(where, given))
    if epoch is not None and (epoch not in UNITS or not source.is_instant):
        raise BadConfiguration(
            f"{where}: epoch is d, s, ms or us, and goes with as = one of {', '.join([*UNITS, *PARTS])}"
        )
    if source.names is not None and conversion is not None:
        raise BadConfiguration(f"{where}: give names or as, not both")
    return source


def _names_of(where: str, given: object) -> Mapping[str, int] | None:
    if given is None:
        return None
    if isinstance(given, Sequence) and not isinstance(given, str):
        given = {name: at for at, name in enumerate(given)}
    if not isinstance(given, Mapping) or not given or not all(_is_name(*pair) for pair in given.items()):
        raise BadConfiguration(f"{where}: names must be a list of texts, or a table such as {{ web = 3, app = 4 }}")
    return dict(given)


def _scale_of(where: str, given: Mapping[str, Any]) -> int | None:
    scale = given.get("scale")
    if scale is None or (type(scale) is int and 0 <= scale <= _HIGHEST_SCALE and given.get("as") == DECIMAL):
        return scale
    raise BadConfiguration(f"{where}: scale is a whole number up to {_HIGHEST_SCALE}, and goes with as = {DECIMAL!r}")


def _is_name(name: object, number: object) -> bool:
    return isinstance(name, str) and isinstance(number, int) and not isinstance(number, bool)
