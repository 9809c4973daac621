"""Turns tensors into the bytes and headers of a request, and an answer's bytes and headers back into arrays.

The module is pure, except that it reads a clock for an answer that says that its request was late.

If the signature shows that plain rows are enough, a request is just rows: the worker reads many of them at once. Others
have the binary-data form, which any model takes: a JSON head with names, types and shapes, then each tensor's bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np
import orjson
from numpy.typing import ArrayLike

from inference_client.binary_data import HEAD_LENGTH, LENGTH, outputs
from inference_client.errors import DeadlineExceeded, InferenceError, Internal, InvalidArgument, error_of
from inference_client.signature import DTYPES, Array, Inputs, Result, Signature, TensorSpec, typed

Header = tuple[str, bytes]

_OCTETS: Header = ("content-type", b"application/octet-stream")
_NO_ANSWER = (
    "a record with the id of this request came that has no header status, so it is no answer: is the topic of answers "
    "the worker's response topic?"
)
_SLACK = 0.1  # seconds; clocks that are kept together differ by some hundredths
_BY_BROKER = 2  # Kafka's type of a timestamp that the broker gave, the topic's `LogAppendTime`
_KNOWN = 1024  # heads in the cache: a program sends a handful of shapes


class Message(Protocol):
    """An answer as Kafka's client hands it over."""

    def error(self) -> Any: ...
    def headers(self) -> Any: ...
    def value(self) -> Any: ...
    def timestamp(self) -> tuple[int, int]: ...


class Encoded(NamedTuple):
    """A request's value, and the headers that say how to read it."""

    value: bytes
    headers: Sequence[Header]


# `Encoded`'s own constructor takes 0.1 µs more (measured 2026-11).
_encoded: Callable[[tuple[bytes, Sequence[Header]]], Encoded] = partial(tuple.__new__, Encoded)


class Encoder:
    """Writes the requests of one model, and reads its answers. Many threads may use it, because it never changes."""

    def __init__(self, signature: Signature | None) -> None:
        self._signature = signature
        self._rows_in, self._rows_out = _only_rows(signature)
        self._form_in = _form(self._rows_in) if self._rows_in is not None else None
        self._form = _form(self._rows_out) if self._rows_out is not None else None
        # By the number of bytes: a program sends and receives a handful of sizes.
        self._rows_headers = lru_cache(_KNOWN)(partial(_rows_headers, self._form_in))
        self._rows_stated = lru_cache(_KNOWN)(partial(_rows_stated, self._form))

    def encode(self, inputs: Inputs | ArrayLike) -> Encoded:
        """The request for these inputs. An array alone stands for the model's only input. Raises `InvalidArgument`."""
        plain = self._plain(inputs)
        if plain is not None:
            value = plain.tobytes()
            return _encoded((value, self._rows_headers(len(value))))
        named = inputs if isinstance(inputs, Mapping) else {self._only_input(): inputs}
        if self._rows_in is not None and len(named) == 1:
            ((name, given),) = named.items()
            _, array = typed(name, given, self._signature)
            _check_rows([array])
            value = array.tobytes()
            return Encoded(value, self._rows_headers(len(value)))
        return self._binary_data({name: typed(name, given, self._signature) for name, given in named.items()})

    def _plain(self, inputs: Inputs | ArrayLike) -> Array | None:
        """The inputs if they are rows as the model takes them: most are, found in 0.5 µs, not 4 (measured 2026)."""
        form = self._form_in
        if form is None:
            return None
        given = inputs.get(form.name) if type(inputs) is dict and len(inputs) == 1 else inputs
        if type(given) is not np.ndarray or given.dtype != form.dtype:
            return None
        shape = given.shape
        return given if (shape == form.dims or shape[1:] == form.dims) and given.size else None

    def _only_input(self) -> str:
        if self._signature is None:
            raise InvalidArgument("give {name: tensor} for each input; without a signature no input's name is known")
        if len(self._signature.inputs) != 1:
            raise InvalidArgument(f"give {{name: tensor}} for each input; the model takes {self._signature.takes}")
        return next(iter(self._signature.inputs))

    @staticmethod
    def _binary_data(tensors: Mapping[str, tuple[str, Array]]) -> Encoded:
        _check_rows([array for _, array in tensors.values()])
        parts = [_bytes_of(array) for _, array in tensors.values()]
        heads = [
            _heading(name, datatype, array.shape, len(part))
            for (name, (datatype, array)), part in zip(tensors.items(), parts, strict=True)
        ]
        head = b'{"inputs":[%b]}' % b",".join(heads)
        return Encoded(b"".join([head, *parts]), [_OCTETS, (HEAD_LENGTH, b"%d" % len(head))])

    def read(self, message: Message) -> Result | InferenceError:
        """Decode an answer as Kafka's client hands it over."""
        outcome = self.decode(dict(message.headers() or ()), message.value() or b"")
        return _compared(outcome, message.timestamp(), time.time()) if type(outcome) is DeadlineExceeded else outcome

    def decode(self, headers: Mapping[str, bytes | None], value: bytes) -> Result | InferenceError:
        """Decode an answer. Raises nothing: an answer that cannot be read is an `Internal` error."""
        try:
            if headers.get("status") == b"ok":
                head = headers.get(HEAD_LENGTH)
                return self._without_head(headers, value) if head is None else outputs(value, int(head))
            if headers.get("status") is None:  # a dead letter, or a copy of the request, with its id
                return Internal(_NO_ANSWER)
            return error_of(_text(headers, "error-code"), self._why(headers, value), _text(headers, "source"))
        except Internal as known:
            return known
        except Exception as error:  # noqa: BLE001  # after any error this future must end, and the others, too
            return Internal(f"the answer cannot be read: {error!r}", _text(headers, "source"))

    def _without_head(self, headers: Mapping[str, bytes | None], value: bytes) -> Result:
        name, dtype, shape, stated = self._rows_stated(len(value))
        found = headers.get("content-type"), headers.get("datatype"), headers.get("rows")
        if found != stated:
            _check_stated(found, stated)
        return {name: np.ndarray(shape, dtype, value)}

    def _why(self, headers: Mapping[str, bytes | None], value: bytes) -> str:  # noqa: ARG002  # for records
        message: str = orjson.loads(value)["error"]
        return message


def _compared(error: DeadlineExceeded, stamp: tuple[int, int], now: float) -> DeadlineExceeded:
    """The error, with a hint if our clock is behind. `stamp`: the answer's kind of timestamp, milliseconds since 1970.

    A request's time counts from its timestamp, by this machine's clock, to the time on the worker's clock. No answer is
    read before it was written, so a timestamp from the future shows that this machine's clock is behind.
    """
    behind = stamp[1] / 1000 - now
    if behind < _SLACK:
        return error
    whose = "the brokers'" if stamp[0] == _BY_BROKER else "the worker's"
    said = f"this machine's clock is {behind:.1f} s behind {whose}, which takes as much of each timeout: set one"
    return DeadlineExceeded(f"{error.message}; {said}", error.source, error.code)


def _text(headers: Mapping[str, bytes | None], name: str) -> str:
    return (headers.get(name) or b"").decode(errors="replace")


class _Form(NamedTuple):
    """The form of an input's or output's rows."""

    name: str
    datatype: bytes
    dtype: np.dtype[Any]
    dims: tuple[int, ...]
    row_bytes: int


def _form(spec: TensorSpec) -> _Form:
    dtype = np.dtype(DTYPES[spec.datatype])
    return _Form(spec.name, spec.datatype.encode(), dtype, spec.shape[1:], prod(spec.shape[1:]) * dtype.itemsize)


def _rows_headers(form: _Form | None, size: int) -> Sequence[Header]:
    """The headers by which the worker checks rows: bytes do not tell their type, and its model may have changed."""
    assert form is not None
    return _OCTETS, ("datatype", form.datatype), ("rows", b"%d" % (size // form.row_bytes))


class _Stated(NamedTuple):
    """An answer of a given size in bytes: its array, and `says`, the headers that it must have."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    says: tuple[bytes, bytes, bytes]


def _rows_stated(form: _Form | None, size: int) -> _Stated:
    if form is None:
        raise ValueError("rows came, and the signature does not say of what")
    rows, rest = divmod(size, form.row_bytes)
    if rest or not rows:
        raise ValueError(f"{size} bytes are no rows of {form.row_bytes}")
    return _Stated(form.name, form.dtype, (rows, *form.dims), (_OCTETS[1], form.datatype, b"%d" % rows))


def _check_stated(found: tuple[bytes | None, bytes | None, bytes | None], says: tuple[bytes, bytes, bytes]) -> None:
    """Raises `ValueError` if the answer is JSON of a length like rows, or says that its rows have another form.

    A worker of an older version says nothing.
    """
    content_type, *stated = found
    if content_type not in {None, says[0]}:
        raise ValueError(f"expected {says[0].decode()}, got {content_type!r}")
    if stated not in ([None, None], [*says[1:]]):
        came, count = [(text or b"?").decode(errors="replace") for text in stated]
        raise ValueError(
            f"{count} rows of {came} came, by the signature they are {says[2].decode()} of {says[1].decode()}: the "
            "worker serves another one"
        )


def _only_rows(signature: Signature | None) -> tuple[TensorSpec | None, TensorSpec | None]:
    """The input whose plain rows make a request, and the output whose plain rows then make the answer.

    None if plain rows are not enough: for several inputs, strings, and dimensions that requests choose. Several
    outputs, and strings, come with a head.
    """
    if signature is None or len(signature.inputs) != 1:
        return None, None
    (taken,), given = signature.inputs.values(), list(signature.outputs.values())
    if not _is_fixed(taken):
        return None, None
    if len(given) == 1 and given[0].datatype != "BYTES":
        return (taken, given[0]) if _is_fixed(given[0]) else (None, None)
    return taken, None


def _is_fixed(spec: TensorSpec) -> bool:
    return spec.datatype != "BYTES" and len(spec.shape) > 0 and all(size > 0 for size in spec.shape[1:])


def _check_rows(arrays: Sequence[Array]) -> None:
    if not arrays:
        raise InvalidArgument("expected at least one input")
    rows = {array.shape[0] for array in arrays}
    if len(rows) > 1 or 0 in rows or any(array.size == 0 for array in arrays):
        raise InvalidArgument(f"expected the same number of rows in each input, at least one, got {sorted(rows)}")


def _bytes_of(array: Array) -> bytes:
    if array.dtype != object:
        return array.tobytes()
    try:
        texts = [item.encode() if isinstance(item, str) else item for item in array.reshape(-1)]
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"a string has no form in UTF-8: {error}") from error
    return b"".join([part for text in texts for part in (LENGTH.pack(len(text)), text)])


@lru_cache(maxsize=_KNOWN)
def _heading(name: str, datatype: str, shape: tuple[int, ...], size: int) -> bytes:
    parameters = {"binary_data_size": size}
    return orjson.dumps({"name": name, "shape": shape, "datatype": datatype, "parameters": parameters})
