"""Open Inference Protocol requests as JSON, alone or as the head of the binary-data form.

A request is an object with `inputs`, each with `name`, `shape`, `datatype` and either `data` or, in the binary-data
form, the parameter `binary_data_size`. Other members are ignored, and so are other parameters, except some that other
servers know. If a name comes twice in an object, the last counts, as in every JSON parser.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import orjson

from worker.codecs.encodings import oip
from worker.codecs.encodings.elements import NAMES, Columns, flat, from_bytes, from_values, packer, reader
from worker.codecs.encodings.oip import (
    Claim,
    Fault,
    Good,
    Judge,
    Known,
    Question,
    Statement,
    WantedOutput,
    check_size,
    checked_id,
)
from worker.codecs.request_headers import HeaderForm
from worker.core.failures import Reject
from worker.core.records import Tensor
from worker.core.tensors.specs import TensorSpec

Object = dict[str, Any]

NOTHING = memoryview(b"")


class Json:
    """Reads JSON requests. Owns the statements that it has met in plain documents."""

    def __init__(self, judge: Judge, most_bytes: int) -> None:
        """`most_bytes`: of one value."""
        self._judge = judge
        self._most_bytes = most_bytes
        self._known: Known[tuple[object, ...], _Learned] = Known()

    def read(self, form: HeaderForm, values: Sequence[bytes]) -> Sequence[Good | Fault]:
        return [self._read(form, value) for value in values]

    def body_id(self, form: HeaderForm, value: bytes) -> str | None:  # noqa: ARG002  # one for all encodings
        return checked_id(document_of(value, self._most_bytes).get("id"))

    def _read(self, form: HeaderForm, value: bytes) -> Good | Fault:
        body_id = None
        try:
            document = document_of(value, self._most_bytes)
            body_id = document.get("id")
            if body_id is not None:
                body_id, given = None, body_id
                body_id = checked_id(given)
            key, data = _plain(document)
            learned = self._learned(key)
            if learned is None:
                statement, tensors = self._judge.judge(question_of(document, NOTHING))
            else:
                statement, tensors = learned.statement, learned.tensors(document["inputs"], data, value, body_id)
        except Reject as no:
            return Fault(no.code, no.message, body_id)
        kind = statement.kinds.get(form)
        if kind is not None:
            return tuple.__new__(Good, (statement, kind, tensors, body_id))  # 0.2 µs faster than its constructor
        good = self._judge.good(form, statement, tensors, body_id)
        if learned is None and key and isinstance(good, Good):
            self._known.learn(key, _Learned.of(statement, key), 64 * len(key))
        return good

    def _learned(self, key: tuple[object, ...]) -> _Learned | None:
        """What is known of a document with this key. The types count too, because 1.0 and true equal 1."""
        try:
            learned = self._known.get(key)
        except TypeError:  # it holds a list
            return None
        return learned if learned is not None and learned.types == list(map(type, key)) else None


def document_of(text: bytes | memoryview, most_bytes: int, held: str = "the value") -> Object:
    """The JSON object of at most `most_bytes`. Raises `Reject` for any other text; `held` names it."""
    if len(text) > most_bytes:
        check_size("the JSON", len(text), most_bytes)
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Reject(f"{held} is not JSON: {_fault_of(error)}") from None
    if type(document) is not dict:
        raise Reject(f"expected a JSON object with `inputs`, got {NAMES[type(document)]}")
    return document


_NO_KEY: tuple[object, ...] = ()
_MEMBERS = 4  # name, shape, datatype and data


def _plain(document: Object) -> tuple[tuple[object, ...], list[Any]]:
    """All that a plain document says of its tensors, and their `data`. The key is empty if the document is not plain.

    It is plain if its tensors have names, shapes and data and no more, its outputs names. Then the key decides
    everything else. Nothing is checked here: a key that is known was right.
    """
    try:
        if document.get("parameters") is not None:
            return _NO_KEY, []
        inputs, outputs = document["inputs"], document.get("outputs")
        key = [document.get("model_name"), document.get("model_version")]
        for entry in inputs:
            if len(entry) != _MEMBERS:
                return _NO_KEY, []
            key += entry["name"], entry["datatype"], *entry["shape"]
        if outputs is not None:
            if type(outputs) is not list or any(len(output) != 1 for output in outputs):
                return _NO_KEY, []
            key += [None, *[output["name"] for output in outputs]]
        return tuple(key), [entry["data"] for entry in inputs]
    except (KeyError, TypeError):
        return _NO_KEY, []


class _Learned(NamedTuple):
    """A statement that plain documents make, and what packs the elements of each claim.

    `letters`: how many u and l such a document has at least, in its names; its id may have more. A boolean has one of
    them. So a document with no more has no booleans among its numbers, and need not be searched for them: they would be
    packed as 1 and 0. An escape may hide an l, but has a u. Where not all inputs can be packed, `letters` is (-1, -1).
    """

    statement: Statement
    types: Sequence[type]  # of the key's parts
    packers: Sequence[Callable[..., bytes] | None]
    readers: Sequence[Callable[[Any], Tensor]]
    letters: tuple[int, int]
    columns: Columns | None
    is_in_order: bool

    @classmethod
    def of(cls, statement: Statement, key: Sequence[object]) -> _Learned:
        claims = statement.claims
        packers = [packer(spec.datatype, elements) for spec, elements in claims]
        members = ["inputs", *[name for name, said in zip(("model_name", "model_version"), key, strict=False) if said]]
        members += ["outputs"] if statement.outputs else []
        said = "".join([*members, *[text for text in key if isinstance(text, str)]])
        letters = (said.count("u"), said.count("l")) if all(packers) else (-1, -1)
        readers = [reader(spec, elements) for spec, elements in claims]
        columns = Columns([spec for spec, _ in claims]) if {elements for _, elements in claims} == {1} else None
        return cls(statement, list(map(type, key)), packers, readers, letters, columns, statement.is_in_order)

    def tensors(
        self, inputs: Sequence[Object], data: Sequence[Any], value: bytes, body_id: str | None
    ) -> tuple[Tensor, ...]:
        """The tensors of a document that says this, in the model's order. Raises `Reject`."""
        statement, _, packers, readers, (us, ls), columns, is_in_order = self
        tensors: Sequence[Tensor] | None = None
        if body_id is not None and us >= 0:
            us, ls = us + body_id.count("u"), ls + body_id.count("l")
        try:
            if columns is not None:
                tensors = columns.read(data)
            elif value.count(b"u") == us and value.count(b"l") == ls:
                tensors = [pack(*each) for pack, each in zip(packers, data, strict=True)]  # type: ignore[misc]  # all can be packed
            if tensors is None:
                tensors = [read(each) for read, each in zip(readers, data, strict=True)]
        except (struct.error, OverflowError, TypeError, ValueError):
            tensors = [_inline(entry, *of) for entry, of in zip(inputs, statement.claims, strict=True)]
        return tuple(tensors) if is_in_order else statement.arranged(tensors)


def question_of(document: Object, tail: memoryview) -> Question:
    """Take a request apart. Raises `Reject` if it is none."""
    said = _parameters(document, "the request")
    return Question(
        _optional(document, "model_name", str, "the request"),
        _optional(document, "model_version", str, "the request"),
        _claims(document, tail),
        map(_output, _objects(document, "outputs")),
        _optional(said, "binary_data_output", bool, "the request"),
        oip.sequence_of(said) if said else None,
    )


def _claims(document: Object, tail: memoryview) -> Iterator[Claim]:
    inputs = _objects(document, "inputs")
    if not inputs:
        raise Reject("expected `inputs`, an array of at least one tensor")
    at = 0
    for entry in inputs:
        name = _required(entry, "name", str, "an input")
        where = f"input {name[:80]!r}"
        datatype = _required(entry, "datatype", str, where)
        size = None
        if said := _parameters(entry, where):
            size = _optional(said, "binary_data_size", int, where)
            oip.check_input(said, datatype, where)
        if size is None:
            elements = partial(_inline, entry)
        else:
            elements = partial(from_bytes, _slice(tail, at, size, where))
            at += size
        yield Claim(name, datatype, _required(entry, "shape", list, where), elements)
    if at != len(tail):
        raise Reject(f"{len(tail)} bytes came behind the JSON head, binary_data_size speaks of {at}")


def _slice(tail: memoryview, at: int, size: int, where: str) -> memoryview:
    if size < 0 or at + size > len(tail):
        raise Reject(f"{where}: binary_data_size is {size}, {len(tail) - at} bytes are left")
    return tail[at : at + size]


def _output(entry: Object) -> WantedOutput:
    name = _required(entry, "name", str, "an output")
    where = f"output {name[:80]!r}"
    said = _parameters(entry, where)
    oip.check_parameters(said, where, "np", "str")
    return WantedOutput(name, _optional(said, "binary_data", bool, where))


def _inline(entry: Object, spec: TensorSpec, elements: int) -> Tensor:
    if "data" not in entry:
        raise Reject(
            f"input {spec.name}: expected `data`, or the parameter binary_data_size with bytes behind the head"
        )
    return from_values(spec, flat(spec, elements, entry["shape"], entry["data"]))


def _fault_of(error: orjson.JSONDecodeError) -> str:
    """The fault and its place. It names NaN and Infinity, which Python's own `json`, for example, writes."""
    if "surrogates" in error.msg:  # orjson says that of all bytes that are not UTF-8
        return "it is not UTF-8"
    odd = next((word for word in ("NaN", "Infinity") if error.doc.startswith(word, error.pos)), None)
    place = str(error).removeprefix(error.msg)
    return f"JSON has no {odd}{place}" if odd else f"{error.msg}{place}"


def _objects(holder: Object, name: str) -> list[Object]:
    """A member that is an array of objects; empty if it is absent."""
    entries = _optional(holder, name, list, "the request") or []
    for entry in entries:
        if type(entry) is not dict:
            raise Reject(f"`{name}`: expected an array of objects, got {NAMES[type(entry)]} in it")
    return entries


def _parameters(holder: Object, where: str) -> Object:
    return _optional(holder, "parameters", dict, where) or {}


def _required(holder: Object, name: str, kind: type, where: str) -> Any:
    found = _optional(holder, name, kind, where)
    if found is None:
        raise Reject(f"{where}: `{name}` is missing")
    return found


def _optional(holder: Object, name: str, kind: type, where: str) -> Any:
    """The member of that name; None if it is absent or null. Raises `Reject` if it is of another kind."""
    found = holder.get(name)
    if found is not None and type(found) is not kind:
        raise Reject(f"{where}: expected `{name}` to be {NAMES[kind]}, got {NAMES[type(found)]}")
    return found
