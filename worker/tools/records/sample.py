"""A sample of records: from a file or a topic, and what each of its fields holds.

records ── encoding? envelope? ──▶ objects ──▶ `Seen` for each path, in the order of the fullest record
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import reduce
from itertools import islice
from pathlib import Path as File
from types import NoneType
from typing import Any, Literal, NamedTuple

import msgspec

from worker.codecs.records.elements import as_instant
from worker.codecs.records.paths import EACH, Path
from worker.core.failures import BadConfiguration
from worker.core.records import Partition, Record
from worker.tools.lines import lines

MOST_FIELDS = 2_000  # a record whose names are data would have more
MOST_NAMES = 20  # a text with more values is no choice of a few
_DEEPEST = 16
_DECIMAL = re.compile(r"[+-]?\d{1,30}(\.\d{1,30})?")
_PICTURES = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"RIFF")
_IN_BASE64 = ("/9j/", "iVBORw0KGgo", "UklGR")
# Where Debezium and Kafka Connect put the record.
_ENVELOPES = ("payload.after", "after", "payload")
_ABOUT = ({"op", "source"}, {"op", "source"}, {"schema"})  # what stands next to it there


class Kind(StrEnum):
    """The kind of a value, in words."""

    WHOLE = "whole numbers"
    NUMBER = "numbers"
    BOOLEAN = "booleans"
    TEXT = "texts"
    DECIMAL = "decimals as texts"
    INSTANT = "instants as texts"
    PICTURE = "pictures in base64"
    NULL = "null"
    WHOLES = "arrays of whole numbers"
    NUMBERS = "arrays of numbers"
    OTHER = "arrays or objects"


@dataclass(slots=True)
class Seen:
    """The values of one field, summed up. `of`: how many times it could have been there.

    `names` has its different texts, up to `MOST_NAMES` + 1 of them, and `characters` the sum of their lengths.
    `lengths`: how many of its arrays have each. `is_unique`: no value came twice. `is_of_row`: its array has the rows.
    """

    path: Path
    of: int = 0
    kinds: Counter[Kind] = field(default_factory=Counter)
    names: dict[str, int] = field(default_factory=dict)
    lengths: Counter[int] = field(default_factory=Counter)
    characters: int = 0
    hashes: set[int] = field(default_factory=set)
    is_of_row: bool = False

    @property
    def is_inner(self) -> bool:
        """True if a row may have several of it."""
        return self.path.has_each and not self.is_of_row

    @property
    def kind(self) -> Kind:
        """The kind of most of its values that are not null; whole numbers among numbers are numbers."""
        kinds = self.kinds - Counter({Kind.NULL: self.kinds[Kind.NULL]})
        for whole, wide in ((Kind.WHOLE, Kind.NUMBER), (Kind.WHOLES, Kind.NUMBERS)):
            if kinds[wide] and kinds[whole]:
                kinds[wide] += kinds.pop(whole)
        if kinds[Kind.TEXT]:  # a text like a decimal is a text among texts
            for like in (Kind.DECIMAL, Kind.INSTANT, Kind.PICTURE):
                kinds[Kind.TEXT] += kinds.pop(like, 0)
        return kinds.most_common(1)[0][0] if kinds else Kind.NULL

    @property
    def usual_length(self) -> int | None:
        """The length of more than half of its arrays; None if there is none."""
        return next((length for length, number in self.lengths.items() if 2 * number > self.lengths.total()), None)

    @property
    def lacks(self) -> int:
        """How often it was missing or null."""
        return self.of - self.kinds.total() + self.kinds[Kind.NULL]

    @property
    def is_unique(self) -> bool:
        return not self.lacks and len(self.hashes) == self.of

    def add(self, value: Any) -> None:
        kind = kind_of(value)
        self.kinds[kind] += 1
        if isinstance(value, list):
            self.lengths[len(value)] += 1
        elif isinstance(value, str | int | float):
            self.hashes.add(hash(value))
        if isinstance(value, str):
            self.characters += len(value)
            if value in self.names or len(self.names) <= MOST_NAMES:
                self.names[value] = self.names.get(value, 0) + 1

    def __str__(self) -> str:
        """The findings, without any value: `amount: numbers, missing 3 %`."""
        given = self.kinds.total()
        kinds = [(kind, number) for kind, number in self.kinds.most_common() if kind is not Kind.NULL]
        told = [kind.value if len(kinds) == 1 else f"{kind.value} {_share(number, given)}" for kind, number in kinds]
        if missing := self.of - given:
            told.append(f"missing {_share(missing, self.of)}")
        if self.kinds[Kind.NULL]:
            told.append(f"null {_share(self.kinds[Kind.NULL], self.of)}")
        return f"{self.path}: {', '.join(told)}"


class Sample(NamedTuple):
    """Records, and what they are: the setting's `encoding` and `envelope`. `fields`: of the objects; else none."""

    records: Sequence[Record]
    encoding: Literal["json", "text", "bytes", "registry"]
    envelope: str | None
    fields: Sequence[Seen]
    objects: Sequence[Mapping[str, Any]] = ()

    def of(self, objects: Sequence[Mapping[str, Any]]) -> Sample:
        """The sample of these objects alone."""
        return self._replace(objects=objects, fields=look(objects))


def of_file(path: File, most: int) -> list[Record]:
    """The first lines of a file, at most so many. Raises `BadConfiguration` for a file that cannot be read."""
    if path.suffix in (".csv", ".parquet"):
        raise BadConfiguration(f"{path}: a mapping is proposed from records as a topic has them: give JSON lines")
    try:
        with path.open("rb", buffering=0) as file:
            found = list(islice(lines(file.fileno(), str(path)), most))
    except OSError as error:
        raise BadConfiguration(f"{path}: cannot be read: {error.strerror}") from error
    source = Partition(path.name, 0)
    return [Record(source, number, None, line, (), None) for number, line in enumerate(found, 1) if line]


def are_framed(records: Sequence[Record]) -> bool:
    """True if these values begin as ones whose schema is in a registry do."""
    return all((record.value or b"")[:1] == b"\0" for record in records)


def sample_of(records: Sequence[Record], *, were_framed: bool = False) -> Sample:
    """Look at these records. `were_framed`: they were read by a registry's schemas. Raises `BadConfiguration`."""
    records = [record for record in records if record.value]
    if not records:
        raise BadConfiguration("there are no records to look at: name another topic, or a file with some")
    values = [record.value or b"" for record in records]
    objects = [found for value in values if (found := _object(value)) is not None]
    if 2 * len(objects) >= len(values):
        envelope = next(filter(lambda name: _is_envelope(name, objects), _ENVELOPES), None)
        inner = objects if envelope is None else [_at(one, envelope) for one in objects]
        sample = Sample(records, "registry" if were_framed else "json", envelope, ())
        return sample.of([one for one in inner if isinstance(one, dict)])
    is_text = all(map(_is_text, values))
    return Sample(records, "text" if is_text else "bytes", None, ())


def look(objects: Sequence[Mapping[str, Any]]) -> list[Seen]:
    """The fields of these objects and what each holds, in the order of the fullest object."""
    found: dict[tuple[str, ...], Seen] = {}
    elements = Counter[tuple[str, ...]]()
    for leaves in sorted([[*_leaves(one, (), elements)] for one in objects], key=len, reverse=True):
        for steps, value in leaves:
            if steps in found or len(found) < MOST_FIELDS:
                found.setdefault(steps, Seen(Path(steps))).add(value)
    for steps, seen in found.items():
        seen.of = elements[steps[: steps.index(EACH) + 1]] if EACH in steps else len(objects)
    return list(found.values())


def is_picture(value: bytes) -> bool:
    return value.startswith(_PICTURES)


def kind_of(value: Any) -> Kind:
    match value:
        case None:
            return Kind.NULL
        case bool():
            return Kind.BOOLEAN
        case int():
            return Kind.WHOLE
        case float():
            return Kind.NUMBER
        case str():
            return _kind_of_text(value)
        case list() if (kinds := {*map(type, value)} - {NoneType}) and kinds <= {int, float}:
            return Kind.WHOLES if kinds == {int} else Kind.NUMBERS
    return Kind.OTHER


def _kind_of_text(value: str) -> Kind:
    if _DECIMAL.fullmatch(value):
        return Kind.DECIMAL
    if value.startswith(_IN_BASE64) and len(value) > 64:
        return Kind.PICTURE
    return Kind.INSTANT if as_instant(value) is not None else Kind.TEXT


def _leaves(
    one: Mapping[str, Any], steps: tuple[str, ...], elements: Counter[tuple[str, ...]]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields the paths of an object's values, and the values. `elements` counts those of arrays of objects.

    A field that no path can name is left out.
    """
    for name, value in one.items():
        if name in ("", EACH) or (not steps and name.startswith("$")):
            continue
        own = (*steps, name)
        if isinstance(value, dict) and len(own) < _DEEPEST:
            yield from _leaves(value, own, elements)
        elif isinstance(value, list) and value and EACH not in own and all(isinstance(each, dict) for each in value):
            elements[*own, EACH] += len(value)
            for each in value:
                yield from _leaves(each, (*own, EACH), elements)
        else:
            yield own, value


def _object(value: bytes) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _is_envelope(name: str, objects: Sequence[Mapping[str, Any]]) -> bool:
    """True if most records lie there, next to what such an envelope has."""
    beside = _ABOUT[_ENVELOPES.index(name)]
    around = [_at(one, name.rpartition(".")[0]) for one in objects]
    fits = [isinstance(one, dict) and one.keys() >= beside for one in around]
    return sum(fits) * 2 > len(objects) and any(isinstance(_at(one, name), dict) for one in objects)


def _at(one: Any, path: str) -> Any:
    return at(one, list(filter(None, path.split("."))))


def at(one: Any, steps: Iterable[str]) -> Any:
    """The value at the end of these names; None if there is none."""
    return reduce(lambda at, step: at.get(step) if isinstance(at, dict) else None, steps, one)


def _is_text(value: bytes) -> bool:
    try:
        return "\0" not in value.decode()
    except UnicodeDecodeError:
        return False


def _share(number: int, of: int) -> str:
    """A share in whole per cent, never 0 and never 100 of what is neither."""
    return f"{min(max(1, round(100 * number / of)), 99 if number < of else 100)} %"
