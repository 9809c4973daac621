"""The n-th request of a run and its right answer, made from the number alone, so that nothing is kept.

Owns the model's numbers, from which numpy computes the right answers without ONNX Runtime. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float32]

ROOTS, OUTPUTS, TABLE_ROWS = 7, 4, 64
KEYS = 10_000
DRAWS = 1 << 17  # of a key; then they repeat
POOL = 4096  # different rows; the value shows another request's answer
RAW = b"application/octet-stream"
JSON = b"application/json"
POISON_EVERY = 100  # one request in so many is bad, and one is passed over
PASSED_OVER = "passed over"  # in the place of an error's code
KEYLESS_EVERY = 11
ROWS_EVERY = 7  # one request in so many has several rows
SEVERAL = 3

_chance = np.random.default_rng(11)
TABLE: Rows = _chance.standard_normal((TABLE_ROWS, OUTPUTS), dtype=np.float32)
WEIGHTS: Rows = _chance.standard_normal((ROOTS, OUTPUTS), dtype=np.float32)
_inputs: Rows = np.concatenate(
    [
        _chance.integers(0, TABLE_ROWS, (POOL + SEVERAL, 1)).astype(np.float32),
        _chance.random((POOL + SEVERAL, ROOTS), dtype=np.float32),
    ],
    axis=1,
)
_outputs: Rows = (TABLE[_inputs[:, 0].astype(np.int64)] + np.sqrt(_inputs[:, 1:]) @ WEIGHTS).astype(np.float32)

# Zipf: the n-th key comes 1/n times as often as the first, which a tenth of all requests have.
_shares = np.cumsum(1.0 / np.arange(1, KEYS + 1))
_keys = np.searchsorted(_shares, _chance.random(DRAWS) * _shares[-1]).tolist()

# Batched and single products differ in the last bits; two rows of the pool differ by far more.
TOLERANCE = 1e-4


class Request(NamedTuple):
    """A published request. `partition` -1 leaves the choice to the key.

    `code` is the error due, None: no error, or `PASSED_OVER`: no answer.
    """

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]
    partition: int
    code: str | None


class Poison(NamedTuple):
    """A request that is not answered as others are, and the code of its error."""

    content_type: bytes | None
    value: bytes | None
    code: str


def spoilt(column: int, number: float) -> Rows:
    """A row that the model takes, except for the number in this column."""
    row = _inputs[:1].copy()
    row[0, column] = number
    return row


def _tensor(columns: int) -> bytes:
    tensor = {"name": "x", "shape": [1, columns], "datatype": "FP32", "data": [0.5] * columns}
    return json.dumps({"inputs": [tensor]}).encode()


MODEL_FAILS, ANSWERS_NAN = spoilt(0, 1e6), spoilt(1, -1.0)


class Form(NamedTuple):
    """The form of requests and answers: plain rows here, kinds of records in `records`."""

    content_type: bytes | None  # of a good request
    written: Callable[[int, Rows], bytes]  # the value of the n-th request, from its rows
    poisons: Sequence[Poison]
    answer_type: str
    raw: Callable[[int, bytes], bytes]  # the n-th answer's rows of FP32; `ValueError`: another part of it is wrong
    settings: Mapping[str, str] = {}
    several: int = SEVERAL  # the most rows of a request
    passed_over: bytes | None = None  # the value of a record that gets no answer, where there are such records


ROWS = Form(
    RAW,
    lambda _, given: given.tobytes(),
    (
        Poison(JSON, b'{"inputs": [', "INVALID_ARGUMENT"),
        Poison(RAW, _inputs[:1].tobytes()[:-1], "INVALID_ARGUMENT"),
        Poison(JSON, _tensor(ROOTS), "INVALID_ARGUMENT"),
        Poison(RAW, spoilt(2, float("nan")).tobytes(), "INVALID_ARGUMENT"),
        Poison(RAW, None, "INVALID_ARGUMENT"),
        Poison(b"application/x-python-pickle", _inputs[:1].tobytes(), "INVALID_ARGUMENT"),
        Poison(RAW, MODEL_FAILS.tobytes(), "INVALID_ARGUMENT"),
        Poison(RAW, ANSWERS_NAN.tobytes(), "INTERNAL"),
    ),
    RAW.decode(),
    lambda _, answer: answer,
)


def request(number: int, partitions: int, form: Form = ROWS, *, has_state: bool = False) -> Request:
    """The n-th request to a topic of `partitions` partitions. With state, a keyless one that counts is refused."""
    is_keyless = number % KEYLESS_EVERY == 0
    key = None if is_keyless else b"key-%d" % _keys[number % DRAWS]
    partition = number // KEYLESS_EVERY % partitions if is_keyless else -1
    good = form.content_type, form.written(number, rows(number, form)), None
    content_type, value, code = _poison(number, form) or good
    if has_state and is_keyless and code != PASSED_OVER:
        code = "INVALID_ARGUMENT"
    headers = [] if content_type is None else [("content-type", content_type)]
    headers.append(("request-id", b"r-%d" % number))
    return Request(key, value, headers, partition, code)


def number_of(request_id: str) -> int | None:
    """The number of the request with this id; None for an unknown id."""
    head, _, digits = request_id.partition("-")
    return int(digits) if head == "r" and digits.isdecimal() else None


def rows(number: int, form: Form = ROWS) -> Rows:
    """A good request's rows: (rows, 1 + ROOTS) FP32."""
    return _inputs[_rows(number, form)]


def right_value(number: int, form: Form = ROWS) -> Rows:
    """The answer to a good request: (rows, OUTPUTS) FP32."""
    return _outputs[_rows(number, form)]


def wrong_value(number: int, value: bytes, more: int = 0, form: Form = ROWS) -> str | None:
    """The reason why these bytes are a wrong answer to a good request; None: they are right.

    The last `more` columns, with state, are not judged.
    """
    right = right_value(number, form)
    if len(value) != 4 * len(right) * (OUTPUTS + more):
        return f"{len(value)} bytes, not {4 * len(right) * (OUTPUTS + more)}"
    got = _floats(value, more)[:, :OUTPUTS]
    # `not <=`, because NaN is neither.
    return None if np.abs(got - right).max() <= TOLERANCE else f"{got.tolist()}, not {right.tolist()}"


def told_by(value: bytes, more: int) -> Rows:
    """An answer's columns of state: the last `more` of each row."""
    return _floats(value, more)[:, OUTPUTS:]


def _floats(value: bytes, more: int) -> Rows:
    return np.frombuffer(value, "<f4").reshape(-1, OUTPUTS + more)


def _poison(number: int, form: Form) -> Poison | None:
    at, rest = divmod(number, POISON_EVERY)
    if form.passed_over is not None and rest == POISON_EVERY // 4:
        return Poison(form.content_type, form.passed_over, PASSED_OVER)
    return form.poisons[at % len(form.poisons)] if rest == POISON_EVERY // 2 else None


def _rows(number: int, form: Form) -> slice:
    at = number % POOL
    return slice(at, at + (form.several if number % ROWS_EVERY == 0 else 1))
