"""Open Inference Protocol requests in every encoding share these rules.

`oip_json` and `oip_protobuf` take a value apart into a `Question`; here it is held against the model's signature: the
claims first, then the elements, then which outputs are wanted and how.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from worker.codecs.encodings.elements import NAMES, to_bytes
from worker.codecs.request_headers import Envelope
from worker.codecs.wire_contract import JSON, MAX_TEXT, OCTETS, PROTOBUF
from worker.core.failures import Code, Reject, listed
from worker.core.records import Array, Reply, RequestedOutput, Tensor
from worker.core.tensors.signature import Judged, Signature
from worker.core.tensors.specs import TEXT_BYTES, NamedTensor, TensorSpec

# Reads the elements of a claim that holds: its spec and how many there are.
Elements = Callable[[TensorSpec, int], Tensor]
Named = TypeVar("Named")


class Claim(NamedTuple):
    """One input as a request claims it. `shape` may hold anything until the signature has judged it."""

    name: str
    datatype: str
    shape: Sequence[int]
    elements: Elements


class WantedOutput(NamedTuple):
    """One entry of a request's `outputs`; `binary` None leaves its form to the request as a whole."""

    name: str
    binary: bool | None


class Question(NamedTuple):
    """A request taken apart, nothing in it judged. `binary` is the form of outputs that do not say theirs.

    Inputs and outputs are read when they are asked for, and raise `Reject` then: a value may name any number of them.
    `sequence` is the parameter by which it speaks of a sequence.
    """

    model_name: str | None
    model_version: str | None
    claims: Iterable[Claim]
    outputs: Iterable[WantedOutput]
    binary: bool | None
    sequence: str | None = None


def check_size(what: str, size: int, most: int) -> None:
    """Raises `Reject` for more than may be parsed at once: of a byte a parser makes up to 80, in 0.1 µs."""
    if size > most:
        raise Reject(
            f"{what} has {size} bytes, at most {most} are taken (WORKER_KAFKA__MAX_JSON_BYTES): send large tensors as "
            "bytes, in plain rows, the binary-data form or raw_input_contents",
            Code.RESOURCE_EXHAUSTED,
        )


class Body(Protocol):
    """A value whose syntax is right."""

    @property
    def body_id(self) -> str | None:
        """The request's id. Raises `Reject` for another value."""

    def question(self) -> Question:
        """Raises `Reject` for any other body."""


def checked_id(body_id: object) -> str | None:
    """The id of a request, which comes back as it was sent. Raises `Reject` for one that is no short string."""
    if body_id is None:
        return None
    if not isinstance(body_id, str):
        raise Reject(f"id: expected a string, got {NAMES[type(body_id)]}")
    if len(body_id.encode()) > MAX_TEXT:
        raise Reject(f"id: at most {MAX_TEXT} bytes, got {len(body_id.encode())}")
    return body_id


# Parameters of other servers. One that would change the answer is refused: passed over, it would get an answer to
# another question, with `status: ok`. One that says only how soon, or for whom, is passed over.
_REFUSED = {
    "shared_memory_region": "the worker shares no memory with you; send the elements, and read the answer",
    "classification": "no classes are made of scores here; take the highest of the scores that come",
}
_SEQUENCE = ("sequence_id", "sequence_start", "sequence_end")
# All names that are looked at, except those of the binary-data form.
KNOWN_PARAMETERS = frozenset({"content_type", *_REFUSED, *_SEQUENCE})


def sequence_of(parameters: Mapping[str, Any]) -> str | None:
    """The parameter by which a request speaks of a sequence, if any. Raises `Reject` for a refused one."""
    check_parameters(parameters, "the request", "np", "pd", "str")
    # A 0 and an empty text are Triton's words for none.
    return next((name for name in _SEQUENCE if parameters.get(name)), None)


def check_input(parameters: Mapping[str, Any], datatype: str, where: str) -> None:
    """Raises `Reject` where the elements of this input are something else than they would be taken for."""
    check_parameters(parameters, where, "np", *(["str"] if datatype == "BYTES" else []))


def check_parameters(parameters: Mapping[str, Any], where: str, *harmless: str) -> None:
    """Raises `Reject` for a parameter that would change the answer. `harmless` content types change nothing."""
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
    """Why a model with state is not asked for a sequence: its states would be those of the keys."""
    return Reject(
        f"parameter {name}: the model remembers something of each key, not of a sequence_id: publish the steps of a "
        "sequence under one key, and send the header state: reset with its first step, delete with its last"
    )


def judge(signature: Signature, question: Question) -> Judged:
    """The question's tensors, if this model is meant and takes them. Raises `Reject`."""
    signature.check_model(question.model_name, question.model_version)
    return signature.judge([_tensor(signature, claim) for claim in _few(question.claims, signature.inputs)])


def _few(named: Iterable[Named], specs: Sequence[TensorSpec]) -> Iterable[Named]:
    """One more than the model has, at most: among so many, one is unknown or comes twice."""
    return islice(named, len(specs) + 1)


def _tensor(signature: Signature, claim: Claim) -> NamedTensor:
    elements = signature.check_claim(claim.name, claim.datatype, claim.shape)
    tensor = claim.elements(signature.input(claim.name), elements)
    return NamedTensor(claim.name, claim.datatype, claim.shape, tensor)


def reply_to(signature: Signature, question: Question, envelope: Envelope, reply: Reply) -> Reply:
    """The reply that this question wants. Raises `Reject` when no admitted encoding can carry it."""
    asked = list(_few(question.outputs, signature.outputs))
    outputs = _wanted(signature, asked)
    if reply.content_type == PROTOBUF:
        return reply._replace(outputs=tuple(RequestedOutput(output.name, binary=True) for output in outputs))
    by_default = reply.content_type == OCTETS if question.binary is None else question.binary
    if asked or by_default:
        requested = tuple(RequestedOutput(name, by_default if binary is None else binary) for name, binary in outputs)
    else:
        requested = signature.all_inline
    check_inline(signature, requested)
    if reply.content_type == JSON and any(output.binary for output in requested):
        if OCTETS not in envelope.admitted:
            raise Reject(f"binary outputs are asked for, but `accept` admits only {', '.join(envelope.admitted)}")
        return reply._replace(content_type=OCTETS, outputs=requested)
    return reply._replace(outputs=requested)


def _wanted(signature: Signature, outputs: Sequence[WantedOutput]) -> Sequence[WantedOutput]:
    """The outputs asked for, each known and none twice; all when none is named."""
    if not outputs:
        return [WantedOutput(spec.name, None) for spec in signature.outputs]
    unknown = [output.name for output in outputs if output.name not in signature.output_index]
    if unknown:
        raise Reject(f"the model has no output {unknown[0][:80]!r}; it gives {listed(signature.outputs)}")
    if len({output.name for output in outputs}) < len(outputs):
        raise Reject("an output is asked for twice")
    return outputs


def check_inline(signature: Signature, requested: Sequence[RequestedOutput]) -> None:
    """Raises `Reject` when an output that is to stand in JSON cannot."""
    for name, binary in requested:
        if not binary and signature.outputs[signature.output_index[name]].datatype == "FP16":
            raise Reject(
                f"output {name}: FP16 has no form in JSON; ask for it with the parameter "
                "binary_data, or accept application/octet-stream or application/x-protobuf"
            )


class Output(NamedTuple):
    """One output of an answer; `raw` are its bytes, None when it stands inline in JSON."""

    spec: TensorSpec
    array: Array
    raw: bytes | None


def chosen(signature: Signature, outputs: Sequence[Array], reply: Reply) -> list[Output]:
    """The outputs that the reply wants, in its order; all when it names none. Protobuf carries only bytes."""
    wanted = [(signature.output_index[name], binary) for name, binary in reply.outputs]
    only_bytes = reply.content_type == PROTOBUF
    return [
        Output(signature.outputs[at], outputs[at], to_bytes(outputs[at]) if binary or only_bytes else None)
        for at, binary in wanted or [(at, False) for at in range(len(outputs))]
    ]


def memory(judged: Judged) -> int:
    """The bytes that the tensors hold in addition to the record's own; views of the value hold none."""
    return sum(_tensor_memory(tensor) for tensor in judged.tensors)


def _tensor_memory(tensor: Tensor) -> int:
    if isinstance(tensor, np.ndarray):
        return tensor.size * TEXT_BYTES if tensor.dtype == object else tensor.nbytes
    return len(tensor) if isinstance(tensor, bytes) else 0
