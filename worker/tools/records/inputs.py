"""Finds the field of a sample for each input of a model. Pure.

An input takes the field of its name, at any depth. A vector takes the numeric fields, if there are as many. The input
that is left takes the only field of its kind. Then the values of the field decide on the conversion and the default.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from worker.codecs.records.paths import EACH, Path
from worker.codecs.records.sources import PARTS
from worker.core.tensors.specs import TensorSpec
from worker.tools.records.sample import MOST_NAMES, Kind, Seen

_NUMERIC, _ARRAYS = (Kind.WHOLE, Kind.NUMBER), (Kind.WHOLES, Kind.NUMBERS)
_LIKE_NUMBERS = (*_NUMERIC, Kind.BOOLEAN, Kind.DECIMAL)
_IS_ID = re.compile(r"(^|_)(id|uuid|guid|key)$|[a-z](Id|ID)$")
_CONFIRM = "confirm it"
_MOST_NAMED = 40  # fields that could be an input


class Entry(NamedTuple):
    """One line of the section: its table (empty: `[records]` itself), its name and value, and what was seen.

    `value` None: nothing fits, and the operator must say it. `seen`: the fields that it names. `is_guess`: it names the
    only field that fits.
    """

    table: str
    name: str
    value: Any
    said: str
    seen: Sequence[Seen] = ()
    is_guess: bool = False


class FieldsForInputs:
    """Finds fields for inputs. Owns the note of the fields that are taken."""

    def __init__(self, fields: Sequence[Seen], *, takes_nan: bool) -> None:
        self._fields = fields
        self._takes_nan = takes_nan
        self._taken: set[Path] = set()

    def entries(self, specs: Sequence[TensorSpec]) -> list[Entry]:
        """An entry for each of these inputs, in their order."""
        found: dict[str, Entry] = {}
        for by in (self._by_name, self._vector):
            for spec in specs:
                if spec.name not in found and (entry := by(spec)) is not None:
                    found[spec.name] = entry
        left = [spec for spec in specs if spec.name not in found]
        if len(left) == 1 and (entry := self._only_one(left[0])) is not None:
            found[entry.name] = entry
        return [found.get(spec.name) or self._none(spec) for spec in specs]

    @property
    def _free(self) -> list[Seen]:
        return [seen for seen in self._fields if seen.path not in self._taken]

    def _by_name(self, spec: TensorSpec) -> Entry | None:
        name = _plain(spec.name)
        named = [seen for seen in self._free if _plain(seen.path.name) == name]
        named.sort(key=lambda seen: (2 * seen.lacks > seen.of, seen.path.name != spec.name, len(seen.path.steps)))
        return next((entry for seen in named if (entry := self._entry(spec, seen)) is not None), None)

    def _only_one(self, spec: TensorSpec) -> Entry | None:
        fit = [seen for seen in self._free if not is_id(seen) and _source(spec, seen, takes_nan=True) is not None]
        if len(fit) != 1 or (entry := self._entry(spec, fit[0])) is None:
            return None
        return entry._replace(said=f"{entry.said} No other field fits: {_CONFIRM}.", is_guess=True)

    def _entry(self, spec: TensorSpec, seen: Seen) -> Entry | None:
        source = _source(spec, seen, takes_nan=self._takes_nan)
        if source is None:
            return None
        self._taken.add(seen.path)
        return Entry("inputs", spec.name, source, f"{seen}.{self._doubts(spec, source, seen)}", [seen])

    def _vector(self, spec: TensorSpec) -> Entry | None:
        """As many numeric fields as there are elements: if need be with booleans and decimals, and then with ids."""
        if len(spec.dims) != 1 or spec.dims[0] in (None, 1) or spec.is_text:
            return None
        single = TensorSpec(spec.name, spec.datatype, ())
        for fields in self._choices():
            sources = [_source(single, seen, takes_nan=self._takes_nan) for seen in fields]
            if len(fields) == spec.dims[0] and None not in sources:
                self._taken |= {seen.path for seen in fields}
                told = "; ".join(map(str, fields))
                doubts = map(partial(self._doubts, spec), sources, fields)
                order = f"{len(fields)} fields in the order of the records: confirm that it is the training's."
                said = f"{order} {told}.{''.join(dict.fromkeys(doubts))}"
                return Entry("inputs", spec.name, sources, said, fields)
        return None

    def _choices(self) -> Iterator[list[Seen]]:
        free = [seen for seen in self._free if seen.kind in _LIKE_NUMBERS and not seen.is_inner]
        for fields in ([seen for seen in free if not is_id(seen)], free):
            yield [seen for seen in fields if seen.kind in _NUMERIC]
            yield fields

    def _doubts(self, spec: TensorSpec, source: Any, seen: Seen) -> str:
        """The points that the operator must look at, as sentences."""
        table = source if isinstance(source, dict) else {}
        told = ""
        if "names" in table:
            told += f" The numbers of these names are guessed: {_CONFIRM}; another name is refused."
        if "default" in table:
            told += f" The default stands for a missing one: {_CONFIRM}."
            if spec.is_float:
                told += ' A model that takes NaN needs none, with [model] non_finite_input = "allow".'
        elif seen.lacks:
            is_nan = self._takes_nan and spec.is_float and "names" not in table and seen.kind not in _ARRAYS
            told += " A missing one is NaN." if is_nan else " A record without it is refused."
        if spec.dims[:1] == (seen.usual_length,) and len(seen.lengths) > 1:
            told += " An array of another length is refused."
        return told

    def _none(self, spec: TensorSpec) -> Entry:
        kinds = (Kind.TEXT,) if spec.is_text else _LIKE_NUMBERS
        fit = [str(seen.path) for seen in self._free if seen.kind in kinds]
        have = f"could be {', '.join(fit[:_MOST_NAMED])}{', …' if fit[_MOST_NAMED:] else ''}" if fit else "none fits"
        return Entry("inputs", spec.name, None, f"{spec}: it is not clear which field; {have}.")


def _source(spec: TensorSpec, seen: Seen, *, takes_nan: bool) -> Any:
    """The source of an input's elements, as a setting has it; None if the field does not fit."""
    kind, dims = seen.kind, spec.dims
    if len(dims) == 1 and dims[0] != 1:
        is_items = dims[0] is None and seen.is_inner and kind in _NUMERIC
        is_array = kind in _ARRAYS and not seen.is_inner and dims[0] in (None, seen.usual_length)
        fits = spec.is_float or (spec.dtype.kind in "iu" and kind in (Kind.WHOLE, Kind.WHOLES))
        return _as_source(seen.path, {}) if (is_items or is_array) and fits else None
    if len(dims) > 1 or seen.is_inner:
        return None
    more = _conversion(spec, seen)
    if more is None:
        return None
    if seen.lacks and not (takes_nan and spec.is_float and "names" not in more):
        more = more | _default(spec, more)
    return _as_source(seen.path, more)


def _as_source(path: Path, more: Mapping[str, Any]) -> Any:
    given = written(path)
    return given if isinstance(given, str) and not more else {"field": given, **more}


def _conversion(spec: TensorSpec, seen: Seen) -> dict[str, Any] | None:
    """The conversion that the kind of the values needs; None if none fits."""
    kind = seen.kind
    if spec.is_text:
        return {} if kind in (Kind.TEXT, Kind.DECIMAL, Kind.INSTANT) else None
    if spec.dtype.kind == "b":
        return {} if kind is Kind.BOOLEAN else None
    match kind:
        case Kind.WHOLE:
            return {}
        case Kind.NUMBER | Kind.DECIMAL if spec.is_float:
            return {} if kind is Kind.NUMBER else {"as": "decimal"}
        case Kind.BOOLEAN:
            return {"as": "boolean"}
        case Kind.INSTANT:
            part = next((part for part in PARTS if part in _plain(spec.name)), None)
            return {"as": part or ("s" if spec.is_float else "ms")}
        case Kind.TEXT if len(seen.names) <= min(MOST_NAMES, seen.kinds.total() // 2):
            return {"names": sorted(seen.names)}
    return None


def _default(spec: TensorSpec, more: Mapping[str, Any]) -> dict[str, Any]:
    if "names" in more or more.get("as", "decimal") not in ("decimal", "boolean"):
        return {}  # no name and no instant stands for a missing one
    return {"default": False if more.get("as") == "boolean" else spec.blank}


def is_id(seen: Seen) -> bool:
    return seen.is_unique and _IS_ID.search(seen.path.name) is not None


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def written(path: Path) -> Any:
    """The path as a setting has it: a list of names if one has a character that means something in a path."""
    is_plain = all(step == EACH or not re.search(r"[.\[\]]|^\$", step) for step in path.steps)
    return str(path) if is_plain else list(path.steps)
