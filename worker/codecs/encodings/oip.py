"""The rules that Open Inference Protocol requests share in every encoding, and the way all encodings go.

An encoding takes a value apart into a `Question`. The `Judge` compares it with the model's signature: first the claims,
then the elements, then the wanted outputs and their form. The result is a `Statement`: all that a request says except
its elements and its id. Few requests say something new. So an encoding keeps statements, and recognises a value that
says one of them by its bytes, or by its names and shapes. Only a new statement is judged.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import groupby, islice
from math import prod
from operator import countOf, itemgetter
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from worker.codecs.answer_forms import AskedAnswer, reply_form
from worker.codecs.encodings.elements import NAMES, from_bytes
from worker.codecs.known import MOST, Known
from worker.codecs.request_headers import HeaderForm
from worker.codecs.wire_contract import MAX_TEXT
from worker.core.chunk import Shapes
from worker.core.failures import Code, Reject
from worker.core.records import ModelKey, Record, ReplyForm, StateUse, Tensor
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TEXT_BYTES, NamedTensor, TensorSpec

Held = TypeVar("Held")

_MOST_FORMS = 16  # of headers, for one statement


class Claim(NamedTuple):
    """One input as a request claims it. `shape` may hold anything until the signature has judged it.

    `elements` reads the elements of a claim that was found true. It takes the input's spec and their number.
    """

    name: str
    datatype: str
    shape: Sequence[int]
    elements: Callable[[TensorSpec, int], Tensor]


class Question(NamedTuple):
    """A request taken apart, but not judged. `sequence` is the parameter that makes it a step of a sequence.

    Inputs and outputs are read only when asked for, because a value may name any number of them, and raise `Reject`
    then.
    """

    model_name: str | None
    model_version: str | None
    claims: Iterable[Claim]
    asked: AskedAnswer
    sequence: str | None = None


class Kind(NamedTuple):
    """A kind holds all that the records of a chunk have in common. Equal kinds are one object, while remembered."""

    model: ModelKey
    form: ReplyForm
    state: StateUse | None


@dataclass(slots=True, eq=False)
class Statement:
    """A statement is all that a request says except its elements and its id. It was judged, and one encoding keeps it.

    `claims`: each tensor given, in the request's order, with its number of elements. `order`: for each input of the
    model the index of its claim, or what fills it in. `memory`: the bytes that the tensors hold in addition to the
    value. `kinds`: the kind of a request with these headers.
    """

    signature: Signature
    rows: int
    shapes: Shapes
    claims: Sequence[tuple[TensorSpec, int]]
    order: Sequence[int | Callable[[], Tensor]]
    memory: int
    asked: AskedAnswer
    kinds: Known[HeaderForm, Kind] = field(default_factory=partial(Known, _MOST_FORMS))

    def claim_indexes(self) -> Sequence[int] | None:
        """The index of each input's claim, if all are given and any bytes of their length are elements; else None."""
        if any(spec.needs_a_look for spec, _ in self.claims):
            return None
        indexes = [at for at in self.order if isinstance(at, int)]
        return indexes if len(indexes) == len(self.order) else None

    def arranged(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The tensors of the claims, in the order of the model's inputs. Inputs left out are filled in."""
        return tuple([tensors[at] if isinstance(at, int) else at() for at in self.order])

    def of_bytes(self, raws: Sequence[bytes | memoryview]) -> tuple[Tensor, ...]:
        """The tensors whose bytes, of the right number, are these. Raises `Reject`."""
        claims = zip(raws, self.claims, strict=True)
        return self.arranged([from_bytes(raw, *claim) for raw, claim in claims])


# One value, read: what it says, its tensors in the order of the model's inputs, and its id.
Good = tuple[Statement, tuple[Tensor, ...], str | None]


class Fault(NamedTuple):
    """A fault says why a value is no request; `body_id`, if it was read before."""

    code: Code
    message: str
    body_id: str | None
    is_silent: bool = False  # it gets no answer


class Said(Protocol):
    """The part of what a value says that its chunk needs."""

    @property
    def rows(self) -> int: ...
    @property
    def shapes(self) -> Shapes: ...
    @property
    def memory(self) -> int: ...


class Part(NamedTuple):
    """Values of one kind that were read, in columns; `at` has the index of each among all. No `body_ids`: no ids."""

    kind: Kind
    at: Sequence[int]
    statements: Sequence[Said]
    tensors: Sequence[Sequence[Tensor]]
    body_ids: Sequence[str | None]
    kept: Sequence[Any] | None = None  # as in a chunk
    answer_keys: Sequence[bytes] | None = None


Reads = tuple[Sequence[Part], Sequence[tuple[int, Fault]]]


class Encoding(ABC, Generic[Held]):
    """One way to write a request. It knows how to parse a value, and how to recognise one that says nothing new."""

    def __init__(self, judge: Judge, most_bytes: int) -> None:
        """`most_bytes`: the most that a parser takes apart."""
        self._judge = judge
        self._most_bytes = most_bytes

    def read(self, forms: Sequence[HeaderForm], values: Sequence[bytes], records: Sequence[Record] = ()) -> Reads:  # noqa: ARG002  # records need more
        """Read values whose headers have these forms, none of them empty: the good ones, and the faults by index."""
        found = list(map(self._read, forms, values))
        form, first, count = forms[0], found[0][0], len(found)
        kind = first.kinds.get(form) if isinstance(first, Statement) else None
        if kind is not None and forms.count(form) == count and countOf(map(_first, found), first) == count:
            return [_part(kind, range(count), found)], []  # type: ignore[arg-type]  # no faults
        kinds = [
            one if isinstance(one, Fault) else one[0].kinds.get(form) or self._admitted(form, one)
            for form, one in zip(forms, found, strict=True)
        ]
        faults = [(at, kind) for at, kind in enumerate(kinds) if isinstance(kind, Fault)]
        good: Sequence[int] = range(count)
        if faults:
            good = [at for at in good if not isinstance(kinds[at], Fault)]
        groups = grouped(good, [kinds[at] for at in good], keeps_order=self._judge.has_state)
        return [_part(kinds[at[0]], at, [found[one] for one in at]) for at in groups], faults  # type: ignore[arg-type, misc]  # as above

    def body_id(self, form: HeaderForm, value: bytes) -> str | None:
        """The body's id. Raises `Reject` if it cannot be read."""
        return checked_id(self._parsed(form, value)[1])

    @abstractmethod
    def _read(self, form: HeaderForm, value: bytes) -> Good | Fault:
        """Recognise the value, or have it `_judged`."""

    @abstractmethod
    def _parsed(self, form: HeaderForm, value: bytes) -> tuple[Held, object]:
        """The value, parsed, and its id, which may be anything. Raises `Reject`."""

    @abstractmethod
    def _question(self, held: Held) -> Question:
        """The question that it asks. Raises `Reject` if it is no request."""

    @abstractmethod
    def _learn(self, form: HeaderForm, value: bytes, held: Held, good: Good) -> None:
        """Learn to recognise values that say this."""

    def _judged(self, form: HeaderForm, value: bytes, parsed: tuple[Held, object] | None = None) -> Good | Fault:
        """Judge a value, which may have been parsed already, and learn what it says."""
        body_id = None
        try:
            held, given = parsed or self._parsed(form, value)
            body_id = checked_id(given)
            statement, tensors = self._judge.judge(self._question(held))
        except Reject as no:
            return Fault(no.code, no.message, body_id)
        good = statement, tensors, body_id
        kind = self._admitted(form, good)
        if isinstance(kind, Fault):
            return kind
        self._learn(form, value, held, good)
        return good

    def _admitted(self, form: HeaderForm, good: Good) -> Kind | Fault:
        """The kind of the value under headers of this form, or the fault if no admitted encoding carries its answer."""
        statement, _, body_id = good
        try:
            reply = reply_form(statement.signature, form, statement.asked)
        except Reject as no:
            return Fault(no.code, no.message, body_id)
        kind = _kind(statement.signature.key, reply, form.state)
        statement.kinds.learn(form, kind)
        return kind


_first = itemgetter(0)


def _part(kind: Kind, at: Sequence[int], good: Sequence[Good]) -> Part:
    statements, tensors, body_ids = zip(*good, strict=True)
    ids = () if body_ids.count(None) == len(body_ids) else body_ids
    return Part(kind, at, statements, list(zip(*tensors, strict=True)), ids)


def grouped(indexes: Sequence[int], keys: Sequence[object], *, keeps_order: bool) -> Iterable[Sequence[int]]:
    """These indexes in groups, by a key for each; with `keeps_order` only neighbours share a group."""
    if not keys or keys.count(keys[0]) == len(keys):
        return [indexes] if indexes else []
    if keeps_order:
        return [[at for at, _ in group] for _, group in groupby(zip(indexes, keys, strict=True), itemgetter(1))]
    groups: dict[object, list[int]] = {}
    for at, key in zip(indexes, keys, strict=True):
        groups.setdefault(key, []).append(at)
    return groups.values()


def checked_id(body_id: object) -> str | None:
    """The id of a request, which goes back as it was sent. Raises `Reject` if it is no short string."""
    if body_id is None:
        return None
    if not isinstance(body_id, str):
        raise Reject(f"id: expected a string, got {NAMES[type(body_id)]}")
    if len(body_id.encode()) > MAX_TEXT:
        raise Reject(f"id: at most {MAX_TEXT} bytes, got {len(body_id.encode())}")
    return body_id


def check_size(what: str, size: int, most: int) -> None:
    """Raises `Reject` for more bytes than may be parsed at once: for one byte a parser makes up to 80, in 0.1 µs."""
    if size > most:
        raise Reject(
            f"{what} has {size} bytes, at most {most} are taken (WORKER_KAFKA__MAX_JSON_BYTES): send large tensors as "
            "bytes, in plain rows, the binary-data form or raw_input_contents",
            Code.RESOURCE_EXHAUSTED,
        )


# Parameters of other servers. One that would change the answer is refused: if it were ignored, the requester would get
# the answer to another question, with `status: ok`. One that only says how soon, or for whom, is ignored.
_REFUSED = {
    "shared_memory_region": "the worker shares no memory with you; send the elements, and read the answer",
    "classification": "no classes are made of scores here; take the highest of the scores that come",
}
_SEQUENCE = ("sequence_id", "sequence_start", "sequence_end")
# The names of all parameters that are looked at, except the ones of the binary-data form.
KNOWN_PARAMETERS = frozenset({"content_type", *_REFUSED, *_SEQUENCE})


def sequence_of(parameters: Mapping[str, Any]) -> str | None:
    """The parameter that makes a request a step of a sequence, if any. Raises `Reject` for a refused parameter."""
    check_parameters(parameters, "the request", "np", "pd", "str")
    # With Triton a 0 and an empty text mean none.
    return next((name for name in _SEQUENCE if parameters.get(name)), None)


def check_input(parameters: Mapping[str, Any], datatype: str, where: str) -> None:
    """Raises `Reject` if parameters say that this input's elements are something else than they would be taken for."""
    check_parameters(parameters, where, "np", *(["str"] if datatype == "BYTES" else []))


def check_parameters(parameters: Mapping[str, Any], where: str, *harmless: str) -> None:
    """Raises `Reject` for a parameter that would change the answer. The `harmless` content types change nothing."""
    if KNOWN_PARAMETERS.isdisjoint(parameters):
        return
    packed = parameters.get("content_type")
    if packed and packed not in harmless:
        got = repr(packed[:80]) if isinstance(packed, str) else NAMES[type(packed)]
        raise Reject(
            f"{where}: parameter content_type: {got} is not decoded here: send what it decodes to, without the "
            f"parameter (only {', '.join(harmless)} may stay, which changes nothing)"
        )
    for name, why in _REFUSED.items():
        if parameters.get(name):
            raise Reject(f"{where}: parameter {name}: {why}")


class Judge:
    """Judges questions about some models. A question that names no model means the first."""

    def __init__(self, signatures: Sequence[Signature], *, has_state: bool = False) -> None:
        self.first = signatures[0]
        self.has_state = has_state
        self._by_name = {signature.name: signature for signature in reversed(signatures)}

    def judge(self, question: Question) -> tuple[Statement, tuple[Tensor, ...]]:
        """The statement and the tensors, in the model's order. Raises `Reject` if the model does not take them."""
        if question.sequence is not None and self.has_state:
            raise Reject(
                f"parameter {question.sequence}: the model remembers something of each key, not of a sequence_id: "
                "publish the steps of a sequence under one key, and send the header state: reset with its first step, "
                "delete with its last"
            )
        # The first refuses names that are not its own.
        signature = self._by_name.get(question.model_name or "", self.first)
        signature.check_model(question.model_name, question.model_version)
        given = []
        # At most one more is read than the model has: if there are more, one is unknown or comes twice.
        for name, datatype, shape, read in islice(question.claims, len(signature.inputs) + 1):
            elements = signature.check_claim(name, datatype, shape)
            given.append(NamedTensor(name, datatype, shape, read(signature.input(name), elements)))
        rows, shapes, tensors = signature.judge(given)
        shapes = _one_object(shapes)
        claim_at = {tensor.name: at for at, tensor in enumerate(given)}
        order = [
            claim_at[spec.name]
            if spec.name in claim_at
            else partial(signature.fillings[spec.name].tensor, rows * prod(dims))
            for spec, dims in zip(signature.inputs, shapes, strict=True)
        ]
        claims = [(signature.input(tensor.name), prod(tensor.shape)) for tensor in given]
        outputs = list(islice(question.asked.outputs, len(signature.outputs) + 1))
        asked = question.asked._replace(outputs=outputs)
        return Statement(signature, rows, shapes, claims, order, sum(map(_memory, tensors)), asked), tensors


_kind = lru_cache(maxsize=MOST)(Kind)


@lru_cache(maxsize=MOST)
def _one_object(shapes: Shapes) -> Shapes:
    """These shapes, as the same object each time: the batcher compares them."""
    return shapes


def _memory(tensor: Tensor) -> int:
    """The bytes that a tensor holds in addition to the record's own; a view of the value holds none."""
    if isinstance(tensor, list):
        return len(tensor) * TEXT_BYTES
    return len(tensor) if isinstance(tensor, bytes) else 0
