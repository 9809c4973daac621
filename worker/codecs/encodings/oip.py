"""The rules that Open Inference Protocol requests share in every encoding.

The encodings take a value apart into a `Question`. The `Judge` compares it with the model's signature: first the
claims, then the elements, then the wanted outputs and their form. The result is a `Statement`: all that a request says
except its elements and its id. Few requests say something new. So an encoding keeps statements, and recognises a value
that says one of them by its bytes, or by its names and shapes. Only a new statement is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import prod
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from worker.codecs.encodings.elements import NAMES
from worker.codecs.request_headers import HeaderForm
from worker.codecs.wire_contract import JSON, MAX_TEXT, OCTETS, PROTOBUF
from worker.core.chunk import Shapes
from worker.core.failures import Code, Reject, listed
from worker.core.records import ModelKey, ReplyForm, RequestedOutput, StateUse, Tensor
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TEXT_BYTES, NamedTensor, TensorSpec

# Reads the elements of a claim that was found true. Takes the input's spec and the number of elements.
Elements = Callable[[TensorSpec, int], Tensor]
Named = TypeVar("Named")
Key = TypeVar("Key")


class Claim(NamedTuple):
    """One input as a request claims it. `shape` may hold anything until the signature has judged it."""

    name: str
    datatype: str
    shape: Sequence[int]
    elements: Elements


class WantedOutput(NamedTuple):
    """One entry of a request's `outputs`; `binary` None: the request as a whole decides its form."""

    name: str
    binary: bool | None


class Question(NamedTuple):
    """A request taken apart, but not judged. `binary` is the form of outputs that do not say theirs.

    Inputs and outputs are read only when asked for, because a value may name any number of them, and raise `Reject`
    then. `sequence` is the parameter that makes it a step of a sequence.
    """

    model_name: str | None
    model_version: str | None
    claims: Iterable[Claim]
    outputs: Iterable[WantedOutput]
    binary: bool | None
    sequence: str | None = None


def check_size(what: str, size: int, most: int) -> None:
    """Raises `Reject` for more bytes than may be parsed at once: for one byte a parser makes up to 80, in 0.1 µs."""
    if size > most:
        raise Reject(
            f"{what} has {size} bytes, at most {most} are taken (WORKER_KAFKA__MAX_JSON_BYTES): send large tensors as "
            "bytes, in plain rows, the binary-data form or raw_input_contents",
            Code.RESOURCE_EXHAUSTED,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """What all records of a chunk have in common. Equal kinds are one object, while remembered."""

    model: ModelKey
    form: ReplyForm
    state: StateUse | None


class Fill(NamedTuple):
    """An input that was left out: the number of its elements."""

    input: str
    elements: int


@dataclass(slots=True, eq=False)
class Statement:
    """All that a request says except its elements and its id, judged. It belongs to the encoding that keeps it.

    `claims`: each tensor given, in the request's order, with its number of elements. `order`: for each input of the
    model the place of its tensor among the claims, or what fills it in. `memory`: the bytes that the tensors hold in
    addition to the value. `kinds`: the kind of a request with these headers.
    """

    signature: Signature
    rows: int
    shapes: Shapes
    claims: Sequence[tuple[TensorSpec, int]]
    order: Sequence[int | Fill]
    memory: int
    outputs: Sequence[WantedOutput]
    binary: bool | None
    kinds: dict[HeaderForm, Kind] = field(default_factory=dict)

    @property
    def is_in_order(self) -> bool:
        """True if the claims are the model's inputs in its order."""
        return list(self.order) == list(range(len(self.claims)))

    def arranged(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The tensors of the claims, in the order of the model's inputs. Inputs left out are filled in."""
        fillings = self.signature.fillings
        return tuple(
            [tensors[at] if isinstance(at, int) else fillings[at.input].tensor(at.elements) for at in self.order]
        )


class Good(NamedTuple):
    """One value, read. `tensors` are in the order of the model's inputs."""

    statement: Statement
    kind: Kind
    tensors: tuple[Tensor, ...]
    body_id: str | None


class Fault(NamedTuple):
    """Why a value is no request; `body_id`, if it was read before."""

    code: Code
    message: str
    body_id: str | None


class Encoding(Protocol):
    """One way to write a request."""

    def read(self, form: HeaderForm, values: Sequence[bytes]) -> Sequence[Good | Fault]:
        """Read values whose headers have this form. None of them is empty."""

    def body_id(self, form: HeaderForm, value: bytes) -> str | None:
        """The body's id. Raises `Reject` if it cannot be read."""


def checked_id(body_id: object) -> str | None:
    """The id of a request, which goes back as it was sent. Raises `Reject` if it is no short string."""
    if body_id is None:
        return None
    if not isinstance(body_id, str):
        raise Reject(f"id: expected a string, got {NAMES[type(body_id)]}")
    if len(body_id.encode()) > MAX_TEXT:
        raise Reject(f"id: at most {MAX_TEXT} bytes, got {len(body_id.encode())}")
    return body_id


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


def sequence_refused(name: str) -> Reject:
    """The refusal of a step of a sequence by a model with state, whose states belong to keys."""
    return Reject(
        f"parameter {name}: the model remembers something of each key, not of a sequence_id: publish the steps of a "
        "sequence under one key, and send the header state: reset with its first step, delete with its last"
    )


# The most statements, layouts and kinds that are remembered each, and the most claims or bytes of all of one sort. With
# one more all are forgotten: common ones are soon learned again.
_MAX_KNOWN, _MAX_HELD = 4096, 4 * 1024 * 1024


class Known(dict[Key, Named]):
    """What was learned, within bounds, so that no publisher can fill the memory."""

    _held = 0

    def learn(self, key: Key, found: Named, size: int = 0) -> None:
        """Keep `found`, which holds `size` bytes of its publisher's."""
        if size > _MAX_HELD // 4:
            return
        if len(self) >= _MAX_KNOWN or self._held + size > _MAX_HELD:
            self.clear()
            self._held = 0
        self[key] = found
        self._held += size


class Judge:
    """Judges questions about some models. A question that names no model means the first. Owns the kinds."""

    def __init__(self, signatures: Sequence[Signature], *, has_state: bool = False) -> None:
        self.first = signatures[0]
        self._by_name = {signature.name: signature for signature in reversed(signatures)}
        self._has_state = has_state
        self._shapes: Known[Shapes, Shapes] = Known()
        self._kinds: Known[tuple[ModelKey, ReplyForm, StateUse | None], Kind] = Known()

    def judge(self, question: Question) -> tuple[Statement, tuple[Tensor, ...]]:
        """The statement and the tensors, in the model's order. Raises `Reject` if the model does not take them."""
        if question.sequence is not None and self._has_state:
            raise sequence_refused(question.sequence)
        # The first refuses names that are not its own.
        signature = self._by_name.get(question.model_name or "", self.first)
        signature.check_model(question.model_name, question.model_version)
        given = [_tensor(signature, claim) for claim in _few(question.claims, signature.inputs)]
        statement, tensors = self.stated(signature, given)
        statement.outputs, statement.binary = list(_few(question.outputs, signature.outputs)), question.binary
        return statement, tensors

    def stated(self, signature: Signature, given: Sequence[NamedTensor]) -> tuple[Statement, tuple[Tensor, ...]]:
        """The statement of tensors that have passed `check_claim`, and all inputs. Raises `Reject`."""
        rows, shapes, tensors = signature.judge(given)
        if shapes not in self._shapes:
            self._shapes.learn(shapes, shapes)
        shapes = self._shapes[shapes]
        places = {tensor.name: at for at, tensor in enumerate(given)}
        order = [
            places[spec.name] if spec.name in places else Fill(spec.name, rows * prod(dims))
            for spec, dims in zip(signature.inputs, shapes, strict=True)
        ]
        claims = [(signature.input(tensor.name), prod(tensor.shape)) for tensor in given]
        memory = sum(map(_memory, tensors))
        return Statement(signature, rows, shapes, claims, order, memory, (), None), tensors

    def good(
        self, form: HeaderForm, statement: Statement, tensors: tuple[Tensor, ...], body_id: str | None
    ) -> Good | Fault:
        """The value that says this under headers of this form, or the fault if no admitted encoding can carry it."""
        kind = statement.kinds.get(form)
        if kind is None:
            try:
                kind = self.kind(statement.signature, _reply_to(statement, form), form)
            except Reject as no:
                return Fault(no.code, no.message, body_id)
            if len(statement.kinds) >= _MOST_FORMS:
                statement.kinds.clear()
            statement.kinds[form] = kind
        return tuple.__new__(Good, (statement, kind, tensors, body_id))  # 0.2 µs faster than the class's constructor

    def kind(self, signature: Signature, reply: ReplyForm, form: HeaderForm) -> Kind:
        key = signature.key, reply, form.state
        if key not in self._kinds:
            self._kinds.learn(key, Kind(*key))
        return self._kinds[key]


_MOST_FORMS = 16  # of headers, for one statement


def _few(named: Iterable[Named], specs: Sequence[TensorSpec]) -> Iterable[Named]:
    """At most one more than the model has: if there are more, one is unknown or comes twice."""
    return islice(named, len(specs) + 1)


def _tensor(signature: Signature, claim: Claim) -> NamedTensor:
    elements = signature.check_claim(claim.name, claim.datatype, claim.shape)
    tensor = claim.elements(signature.input(claim.name), elements)
    return NamedTensor(claim.name, claim.datatype, claim.shape, tensor)


def _memory(tensor: Tensor) -> int:
    """The bytes that a tensor holds in addition to the record's own; a view of the value holds none."""
    if isinstance(tensor, np.ndarray):
        return tensor.size * TEXT_BYTES if tensor.dtype == object else tensor.nbytes
    return len(tensor) if isinstance(tensor, bytes) else 0


def _reply_to(statement: Statement, form: HeaderForm) -> ReplyForm:
    """The answer's form that is wanted. Raises `Reject` if no admitted encoding can carry it."""
    signature, asked, reply = statement.signature, statement.outputs, form.reply
    outputs = _wanted(signature, asked)
    if reply.content_type == PROTOBUF:
        return reply._replace(outputs=tuple(RequestedOutput(output.name, binary=True) for output in outputs))
    by_default = reply.content_type == OCTETS if statement.binary is None else statement.binary
    if asked or by_default:
        requested = tuple(RequestedOutput(name, by_default if binary is None else binary) for name, binary in outputs)
    else:
        requested = signature.all_inline
    check_inline(signature, requested)
    if reply.content_type == JSON and any(output.binary for output in requested):
        if OCTETS not in form.admitted:
            raise Reject(f"binary outputs are asked for, but `accept` admits only {', '.join(form.admitted)}")
        return reply._replace(content_type=OCTETS, outputs=requested)
    return reply._replace(outputs=requested)


def _wanted(signature: Signature, outputs: Sequence[WantedOutput]) -> Sequence[WantedOutput]:
    """The outputs asked for, or all if none is named. Raises `Reject` for an unknown one, and for one named twice."""
    if not outputs:
        return [WantedOutput(spec.name, None) for spec in signature.outputs]
    unknown = [output.name for output in outputs if output.name not in signature.output_index]
    if unknown:
        raise Reject(f"the model has no output {unknown[0][:80]!r}; it gives {listed(signature.outputs)}")
    if len({output.name for output in outputs}) < len(outputs):
        raise Reject("an output is asked for twice")
    return outputs


def check_inline(signature: Signature, requested: Sequence[RequestedOutput]) -> None:
    """Raises `Reject` if an output that is wanted in JSON has no form there."""
    for name, binary in requested:
        if not binary and signature.outputs[signature.output_index[name]].datatype == "FP16":
            raise Reject(
                f"output {name}: FP16 has no form in JSON; ask for it with the parameter "
                "binary_data, or accept application/octet-stream or application/x-protobuf"
            )
