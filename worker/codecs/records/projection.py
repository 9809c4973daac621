"""The fields of records that a mapping wants, read in one call for each record, and given as columns.

A projection makes a type of the wanted paths. msgspec decodes a JSON object into it, or converts a dict: it skips what
is not wanted, judges the type of what is, and names the path of a value that is wrong. It reads a record of 440 bytes
with 11 wanted fields in 1.0 µs, where orjson makes a dict of all fields in 2.3 (2026-11).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, chain, pairwise
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import astuple

from worker.codecs.records.paths import EACH, Path

Column = list[Any]
# One record: a JSON text, or an object of another encoding, read.
Given = bytes | memoryview | msgspec.Raw | Mapping[str, Any]

READ_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

_WORDS = {
    "float": "a number",
    "int": "a whole number",
    "str": "a text",
    "bool": "true or false",
    "object": "an object",
    "array": "an array",
    "datetime": "an instant such as 2026-01-31T12:00:00Z",
    "bytes": "bytes in base64",
    "null": "null",
}
# Messages of msgspec that name no kind, and the kinds that they are of.
_FORMS = {
    "Invalid RFC3339 encoded datetime": "datetime",
    "Timestamp is out of range": "datetime",
    "Invalid base64 encoded string": "bytes",
}
_AT = re.compile(r" - at `(?:key in )?\$\.?(?P<path>[^`]*)`$")
_MISSING = re.compile(r"Object missing required field `(?P<name>[^`]*)`")
_EXPECTED = re.compile(r"Expected `(?P<expected>[^`]*)`(?P<bound> [<>]=? -?\d+)?(?:, got `(?P<got>[^`]*)`)?")


REQUIRED: Any = msgspec.NODEFAULT


class Wish(NamedTuple):
    """One wanted field: its path, the type of its value, and what stands in the place of a missing one.

    With a default of None the value may be null, too. Those who publish may want to know an array's `dims`, the `names`
    that alone are taken, the `length` of the array that the path goes through, and that it may be empty (`fills`).
    """

    path: Path
    type: Any
    default: Any = REQUIRED
    dims: Sequence[int | None] = ()
    names: Collection[Any] = ()
    length: int | None = None
    fills: bool = False


class Projected(NamedTuple):
    """Columns with an entry for each record at the indexes `good`, and the faults of the others by index."""

    good: Sequence[int]
    columns: Sequence[Column]
    faults: Mapping[int, str]


@dataclass(slots=True)
class _Node:
    """A place in the tree of wanted paths: the wish that ends here, or the steps that go on."""

    wish: Wish | None = None
    index: int = 0  # of the wish
    steps: dict[str, _Node] = field(default_factory=dict)
    type: Any = None
    is_optional: bool = False  # as `may_miss` says; it is asked for each chunk

    def indexes(self) -> Iterator[int]:
        """The indexes of the wishes here and below."""
        if self.wish is not None:
            yield self.index
        for node in self.steps.values():
            yield from node.indexes()

    @property
    def may_miss(self) -> bool:
        """True if nothing below is required. An array always is."""
        if self.wish is not None:
            return self.wish.default is not REQUIRED
        return EACH not in self.steps and all(node.may_miss for node in self.steps.values())


class _Layer:
    """Wishes whose paths do not meet, as one type."""

    def __init__(self) -> None:
        self._root = _Node()
        self._paths: list[Path] = []

    def takes(self, index: int, wish: Wish) -> bool:
        """Add the wish, unless its path ends inside that of another, or goes on from it."""
        if any(wish.path.below(other) or other.below(wish.path) for other in self._paths):
            return False
        node = self._root
        for step in wish.path.steps:
            if node.steps and (step == EACH) != (EACH in node.steps):  # an array and an object
                return False
            node = node.steps.setdefault(step, _Node())
        node.wish, node.index = wish, index
        self._paths.append(wish.path)
        return True

    def build(self) -> tuple[Any, _Node]:
        """The type of its objects, and the tree by which these are taken apart."""
        return _typed(self._root, "record"), self._root


# Makes the function that reads a record as a type: `from_json`, or `from_objects`.
ReaderOf = Callable[[Any], Callable[[Any], Any]]


def from_json(wanted: Any) -> Callable[[Any], Any]:
    return msgspec.json.Decoder(wanted).decode


def from_objects(wanted: Any) -> Callable[[Any], Any]:
    """Objects of other encodings, and JSON texts among them."""
    convert, decode = partial(msgspec.convert, type=wanted), from_json(wanted)
    return lambda given: convert(given) if type(given) is dict else decode(given)


class Projection:
    """Reads the wanted fields of records. Pure, and bounded by the records' own size."""

    def __init__(self, wishes: Sequence[Wish], reader_of: ReaderOf = from_json) -> None:
        layers: list[_Layer] = []
        for index, wish in enumerate(wishes):
            if not any(layer.takes(index, wish) for layer in layers):
                layers.append(_Layer())
                layers[-1].takes(index, wish)
        self._count = len(wishes)
        built = [layer.build() for layer in layers]
        self._layers = [(reader_of(made), root) for made, root in built]

    def read(self, values: Sequence[Given]) -> Projected:
        """The fields of these records."""
        columns: list[Column] = [[]] * self._count
        faults: dict[int, str] = {}
        read: list[Column] = []
        for reader, _ in self._layers:
            try:
                read.append(list(map(reader, values)))
            except READ_ERRORS:
                read.append([_tried(reader, value, at, faults) for at, value in enumerate(values)])
        good: Sequence[int] = range(len(values))
        if faults:
            good = [at for at in good if at not in faults]
            read = [[objects[at] for at in good] for objects in read]
        if good:
            for objects, (_, root) in zip(read, self._layers, strict=True):
                _spread(root, objects, columns)
        return Projected(good, columns, faults)


def _tried(reader: Callable[[Any], Any], value: Given, at: int, faults: dict[int, str]) -> Any:
    try:
        return reader(value)
    except READ_ERRORS as error:
        faults.setdefault(at, told(error))
        return None


def _typed(node: _Node, name: str) -> Any:
    """The type of what stands at this node."""
    node.is_optional = node.may_miss
    if node.wish is not None:
        node.type = node.wish.type
    elif EACH in node.steps:
        node.type = list[_typed(node.steps[EACH], f"{name}{EACH}")]  # type: ignore[misc]  # made at run time
    else:
        fields: list[Any] = []
        for at, step in enumerate(node.steps):
            fields.append((f"f{at}", *_field(node.steps[step], step)))
        renamed = {f"f{at}": step for at, step in enumerate(node.steps)}
        node.type = msgspec.defstruct(name, fields, rename=renamed, kw_only=True, gc=False, frozen=True)
    return node.type


def _field(node: _Node, name: str) -> tuple[Any, ...]:
    """The type of a field of an object, and its default, if it has one."""
    made = _typed(node, name)
    if not node.may_miss:
        return (made,)
    default = None if node.wish is None else node.wish.default
    return (made | None, None) if default is None and made is not Any else (made, default)


def _spread(node: _Node, objects: Column, columns: list[Column]) -> None:
    """Put the objects of a node into the columns of what is wanted below; lists of them behind an array."""
    if node.wish is not None:
        columns[node.index] = objects
    elif EACH in node.steps:
        inner, count = node.steps[EACH], len(columns)
        flat: list[Column] = [[]] * count
        _spread(inner, list(chain.from_iterable(objects)), flat)
        bounds = list(pairwise(accumulate(map(len, objects), initial=0)))
        for index in inner.indexes():
            columns[index] = [flat[index][start:stop] for start, stop in bounds]
    else:
        parts = zip(*map(astuple, objects), strict=True) if objects else [()] * len(node.steps)
        for inner, part in zip(node.steps.values(), parts, strict=True):
            if inner.wish is not None:
                columns[inner.index] = part  # type: ignore[call-overload]  # a tuple will do
                continue
            values: Column = part  # type: ignore[assignment]  # likewise
            if inner.is_optional and None in part:
                nothing = inner.type()
                values = [nothing if value is None else value for value in part]
            _spread(inner, values, columns)


def told(error: Exception) -> str:
    """The fault of a record in words: the path of the field and what was expected, and nothing of its value."""
    if isinstance(error, RecursionError):
        return "the record is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "a text of the record is not UTF-8"
    text = str(error)
    if not isinstance(error, msgspec.ValidationError):
        return f"the record is no JSON object: {text.removeprefix('JSON is malformed: ').lower()}"
    at = _AT.search(text)
    path = at["path"] if at else ""
    if (missing := _MISSING.match(text)) is not None:
        return f"{path}.{missing['name']}: missing".removeprefix(".")
    if (expected := _EXPECTED.match(text)) is not None:
        wanted = " or ".join([_WORDS.get(kind, kind) for kind in expected["expected"].split(" | ")])
        got = expected["got"]
        said = f"expected {wanted}{expected['bound'] or ''}" + (f", got {_WORDS.get(got, got)}" if got else "")
    else:
        said = _AT.sub("", text).strip()
        kind = _FORMS.get(said)
        said = f"expected {_WORDS[kind]}" if kind else f"{said[:1].lower()}{said[1:]}"
    return f"{path or 'the record'}: {said}"
