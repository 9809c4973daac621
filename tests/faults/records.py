"""Requests that are records in JSON: with an array of rows, or for the operator's functions. Pure.

A record names its number, which its answer must repeat. One in a hundred is of another kind, and gets no answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

from tests.faults.requests import ANSWERS_NAN, JSON, MODEL_FAILS, ROOTS, Form, Poison, Rows, rows
from tests.python_models import hostile

OTHER_KIND = {"kind": "other", "id": 0, "rows": [], "x": [0.5]}
COLUMNS = 1 + ROOTS
UNREADABLE = (
    Poison(None, b'{"kind": "asked", "x": [', "INVALID_ARGUMENT"),
    Poison(None, None, "INVALID_ARGUMENT"),
    Poison(None, b"[" * 10_000, "INVALID_ARGUMENT"),
)
# A function hangs for so long until its process is killed; a busy machine needs seconds for nothing. A stop may have to
# wait for several such ends.
RUN_TIMEOUT_S, DRAIN_TIMEOUT_S = 5, 90
# The harms that end a process are rare: each costs two starts of the model.
HARMS_APART = 30


def _json(**fields: object) -> bytes:
    return json.dumps({"kind": "asked", "id": 0, **fields}).encode()


def _of_rows(number: int, given: Rows) -> bytes:
    return _json(id=number, rows=[{"x": row} for row in given.tolist()], note="not for the model")


def _of_one_row(number: int, given: Rows) -> bytes:
    return _json(id=number, x=given[0].tolist())


def _harm(where: str, harm: int, code: str) -> Poison:
    """A record that asks a function for this harm, by the numbers of `hostile.do_harm`."""
    return Poison(None, _json(x=rows(0)[0].tolist(), **{where: harm}), code)


def rows_of(fields: Mapping[str, Any], number: int) -> bytes:
    """The rows of an answer, as plain requests have them. Raises `ValueError` if it has other fields."""
    if fields.keys() != {"id", "y"} or fields["id"] != number:
        raise ValueError(f"the fields {sorted(fields)}, of the record {fields.get('id')}, not id and y of {number}")
    return np.atleast_2d(np.array(fields["y"], np.float32)).tobytes()


def _from_json(number: int, answer: bytes) -> bytes:
    return rows_of(json.loads(answer), number)


COMMON = {"RECORDS__ONLY": json.dumps({"kind": ["asked"]})}
FED_BY_ROWS = {
    **COMMON,
    "RECORDS__ROWS": "rows",
    "RECORDS__INPUTS": json.dumps({"x": "rows[*].x"}),
    "RECORDS__ANSWER": json.dumps({"keep": ["id"], "y": "y"}),
}
ROWS_OF_JSON = Form(
    None,
    _of_rows,
    (
        *UNREADABLE,
        Poison(None, _json(rows=[{"x": [0.5] * ROOTS}]), "INVALID_ARGUMENT"),
        Poison(None, _json(rows=[{"x": None}]), "INVALID_ARGUMENT"),
        Poison(None, _json(rows=[{"x": ["0.5"] * COLUMNS}]), "INVALID_ARGUMENT"),
        Poison(None, _of_rows(0, MODEL_FAILS), "INVALID_ARGUMENT"),
        Poison(None, _of_rows(0, ANSWERS_NAN), "INTERNAL"),
    ),
    JSON.decode(),
    _from_json,
    FED_BY_ROWS,
    passed_over=json.dumps(OTHER_KIND).encode(),
)

_FAULTY = (
    *UNREADABLE,
    Poison(None, _json(x=[0.5] * ROOTS), "INTERNAL"),
    Poison(None, _json(), "INTERNAL"),
    _harm("inputs", 671, "INVALID_ARGUMENT"),
    _harm("inputs", 672, "INTERNAL"),
    _harm("answer", 671, "INVALID_ARGUMENT"),
    _harm("answer", 672, "INTERNAL"),
    Poison(None, _of_one_row(0, MODEL_FAILS), "INVALID_ARGUMENT"),
    Poison(None, _of_one_row(0, ANSWERS_NAN), "INTERNAL"),
)
_ENDING = [_harm(where, harm, "INTERNAL") for where, harm in (("inputs", 667), ("answer", 669), ("answer", 666))]
_faulty = cycle(_FAULTY)
FUNCTIONS = Form(
    None,
    _of_one_row,
    [poison for harm in _ENDING for poison in (*islice(_faulty, HARMS_APART - 1), harm)],
    JSON.decode(),
    _from_json,
    {
        **COMMON,
        "RECORDS__FUNCTIONS": str(Path(hostile.__file__).with_name("mixed_functions.py")),
        "MODEL__RUN_TIMEOUT_S": str(RUN_TIMEOUT_S),
        "DELIVERY__DRAIN_TIMEOUT_S": str(DRAIN_TIMEOUT_S),
    },
    several=1,
    passed_over=json.dumps(OTHER_KIND).encode(),
)
