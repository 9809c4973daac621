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

from worker.codecs.answer_forms import AskedAnswer, WantedOutput
from worker.codecs.encodings import oip
from worker.codecs.encodings.elements import NAMES, Columns, flat, from_bytes, from_values, packer, reader
from worker.codecs.encodings.oip import Claim, Encoding, Fault, Good, Judge, Question, Statement, check_size
from worker.codecs.known import Known
from worker.codecs.request_headers import HeaderForm
from worker.core.failures import Reject
from worker.core.records import Tensor
from worker.core.tensors.specs import TensorSpec

Object = dict[str, Any]

NOTHING = memoryview(b"")
# The members of a request that say something. The `id` is looked at before.
_MEMBERS = frozenset({"model_name", "model_version", "inputs", "outputs", "parameters"})


class Json(Encoding[tuple[Object, bytes]]):
    """Reads JSON requests. Owns the statements that it has met.

    A statement is known by the JSON of its document without `id`, `data` and unknown members: documents that are equal
    there say the same. To write that JSON takes 0.5 µs, and tells 1 from 1.0 and true, which Python's `==` does not.
    """

    def __init__(self, judge: Judge, most_bytes: int) -> None:
        super().__init__(judge, most_bytes)
        self._known: Known[bytes, _Learned] = Known()

    def _read(self, form: HeaderForm, value: bytes) -> Good | Fault:
        body_id = None
        try:
            document = document_of(value, self._most_bytes)
            body_id = oip.checked_id(document.pop("id", None))
            data, key = _taken_out(document)
            learned = self._known.get(key)
            if learned is not None:
                return learned.statement, learned.tensors(document["inputs"], data, value, body_id), body_id
        except Reject as no:
            return Fault(no.code, no.message, body_id)
        for entry, held in zip(document["inputs"] if data else (), data, strict=True):
            entry["data"] = held
        return self._judged(form, value, ((document, key), body_id))

    def _parsed(self, form: HeaderForm, value: bytes) -> tuple[tuple[Object, bytes], object]:  # noqa: ARG002  # one for all encodings
        document = document_of(value, self._most_bytes)
        return (document, b""), document.get("id")

    def _question(self, held: tuple[Object, bytes]) -> Question:
        return question_of(held[0], NOTHING)

    def _learn(self, form: HeaderForm, value: bytes, held: tuple[Object, bytes], good: Good) -> None:  # noqa: ARG002  # as above
        if key := held[1]:
            self._known.learn(key, _Learned.of(good[0], key), len(key))


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


def _taken_out(document: Object) -> tuple[list[Any], bytes]:
    """The `data` of all inputs, which are taken out of the document, and the JSON of the rest that says something.

    Both are empty if some input has no data, or the rest is nested too deeply to be written.
    """
    data: list[Any] = []
    try:
        inputs = document["inputs"]
        data = [entry["data"] for entry in inputs]
        for entry in inputs:
            del entry["data"]
        if not _MEMBERS.issuperset(document):
            document = {name: said for name, said in document.items() if name in _MEMBERS}
        return data, orjson.dumps(document)
    except (KeyError, TypeError):
        return data, b""


class _Learned(NamedTuple):
    """A statement, and what packs the elements of each claim.

    `letters`: how many u and l such a document has at least, in its names; its id may have more. A boolean has one of
    them. So a document with no more has no booleans among its numbers, and need not be searched for them: they would be
    packed as 1 and 0. An escape may hide an l, but has a u. Where not all inputs can be packed, `letters` is (-1, -1).
    """

    statement: Statement
    packers: Sequence[Callable[..., bytes] | None]
    readers: Sequence[Callable[[Any], Tensor]]
    letters: tuple[int, int]
    columns: Columns | None
    is_in_order: bool

    @classmethod
    def of(cls, statement: Statement, key: bytes) -> _Learned:
        claims = statement.claims
        packers = [packer(spec.datatype, elements) for spec, elements in claims]
        letters = (key.count(b"u"), key.count(b"l")) if all(packers) else (-1, -1)
        readers = [reader(spec, elements) for spec, elements in claims]
        columns = Columns([spec for spec, _ in claims]) if {elements for _, elements in claims} == {1} else None
        is_in_order = list(statement.order) == list(range(len(claims)))
        return cls(statement, packers, readers, letters, columns, is_in_order)

    def tensors(
        self, inputs: Sequence[Object], data: Sequence[Any], value: bytes, body_id: str | None
    ) -> tuple[Tensor, ...]:
        """The tensors of a document that says this, in the model's order. Raises `Reject`."""
        statement, packers, readers, (us, ls), columns, is_in_order = self
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
            tensors = [
                from_values(spec, flat(spec, elements, entry["shape"], each))
                for (spec, elements), entry, each in zip(statement.claims, inputs, data, strict=True)
            ]
        return tuple(tensors) if is_in_order else statement.arranged(tensors)


def question_of(document: Object, tail: memoryview) -> Question:
    """Take a request apart. Raises `Reject` if it is none."""
    said = _parameters(document, "the request")
    return Question(
        _optional(document, "model_name", str, "the request"),
        _optional(document, "model_version", str, "the request"),
        _claims(document, tail),
        AskedAnswer(
            map(_output, _objects(document, "outputs")), _optional(said, "binary_data_output", bool, "the request")
        ),
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
    return name, _optional(said, "binary_data", bool, where)


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
