"""What a function puts into an answer becomes plain values, or is named by its path."""

from __future__ import annotations

import enum
import json
import math
import pickle
from collections import OrderedDict
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.inference.operator_file import Unfit
from worker.inference.records.answer_values import DEEPEST, LARGEST, SMALLEST, plain_fields


class Label(enum.StrEnum):
    FRAUD = "fräud"


class Rank(enum.IntEnum):
    FIRST = 1


class Strange(str):
    __slots__ = ()

    def encode(self, *_: Any) -> bytes:
        return b"something else"


class Share(float):
    __slots__ = ()


def plain(value: Any, *, refuse_non_finite: bool = True) -> Any:
    return plain_fields({"a": value}, refuse_non_finite=refuse_non_finite)["a"]


def refusal(given: Any) -> str:
    with pytest.raises(Unfit) as unfit:
        plain_fields(given, refuse_non_finite=True)
    return str(unfit.value)


def kinds(value: Any) -> set[type]:
    """The types of a value and of all that it holds."""
    inner = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    return {type(value)}.union(*map(kinds, inner))


@pytest.mark.parametrize(
    ("given", "becomes"),
    [
        (None, None),
        (True, True),
        (np.True_, True),
        (np.int64(-3), -3),
        (np.uint64(LARGEST), LARGEST),
        (SMALLEST, SMALLEST),
        (np.float64(0.5), 0.5),
        (np.float32(0.1), 0.1),
        (np.float16(0.5), 0.5),
        (np.str_("é"), "é"),
        (Label.FRAUD, "fräud"),
        (Strange("é"), "é"),
        (Rank.FIRST, 1),
        (Share(0.5), 0.5),
        ((1, [2, "b"]), [1, [2, "b"]]),
        ([0.5, 1.5], [0.5, 1.5]),
        ([], []),
        (OrderedDict(b=1), {"b": 1}),
        (MappingProxyType({"b": {"c": None}}), {"b": {"c": None}}),
        (np.array([[1, 2]], np.uint8), [[1, 2]]),
        (np.array([0.1, 1.5], np.float32), [0.1, 1.5]),
        (np.array([[0.1], [7]], np.float32), [[0.1], [7.0]]),
        (np.array(0.1, np.float32), 0.1),
        (np.array([], np.float32), []),
        (np.array(0.5), 0.5),
        (np.array(["a", "é"]), ["a", "é"]),
        (np.array(["a", None, 1], object), ["a", None, 1]),
        ({Strange("é"): 1}, {"é": 1}),
    ],
    ids=repr,
)
def test_what_an_answer_can_hold_becomes_plain(given: Any, becomes: Any) -> None:
    """Nothing of a class that the worker's process does not have is left, neither numpy's nor the file's."""
    found = plain(given)

    assert found == becomes
    assert kinds(found) <= {dict, list, str, int, float, bool, type(None)}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([1], "list, and a dict is needed"),
        (None, "NoneType, and a dict is needed"),
        ({"seen": {"at": datetime.now(UTC)}}, "datetime in seen.at"),
        ({"sums": [1, Decimal(1)]}, "Decimal in sums[1]"),
        ({"raw": b"x"}, "bytes in raw"),
        ({"all": {1, 2}}, "set in all"),
        ({"at": np.datetime64("2026-11-27")}, "datetime64[D] in at"),
        ({"at": np.array(["2026-11-27"], "M8[ns]")}, "datetime64[ns] in at"),
        ({"z": np.complex64(1)}, "complex64 in z"),
        ({"wide": np.longdouble(1)}, "float128 in wide"),
        ({"list": [{"x": math.nan}]}, "NaN or infinity in list[0].x"),
        ({"x": [0.5, math.inf]}, "NaN or infinity in x[1]"),
        ({"x": np.array([0.5, math.inf])}, "NaN or infinity in x[1]"),
        ({"x": np.float32(math.nan)}, "NaN or infinity in x"),
        ({"n": 2**64}, "a whole number of more than 64 bits in n"),
        ({"n": -(2**63) - 1}, "a whole number of more than 64 bits in n"),
        ({"t": "\ud800"}, "a text that UTF-8 cannot hold in t"),
        ({"\ud800": 1}, "a text that UTF-8 cannot hold in \ud800"),
        ({1: 1}, "int as the name of a field"),
        ({"a": {None: 1}}, "NoneType as the name of a field in a"),
        ({"o": np.array([object()])}, "object in o[0]"),
    ],
    ids=ascii,
)
def test_what_no_answer_can_hold_is_named_by_its_path(given: Any, says: str) -> None:
    """The message has the kind of the value, and not the value."""
    assert refusal(given) == says


def test_values_that_are_not_finite_pass_where_they_are_allowed() -> None:
    """The writer decides about them."""
    given = {"a": math.nan, "b": np.array([math.inf]), "c": [math.nan]}

    found = plain_fields(given, refuse_non_finite=False)

    assert json.dumps(found) == '{"a": NaN, "b": [Infinity], "c": [NaN]}'


def test_a_value_without_an_end_is_refused() -> None:
    """It would end the process that writes it."""
    endless: list[Any] = []
    endless.append(endless)

    assert refusal({"x": endless}).startswith(f"more than {DEEPEST} levels in x[0][0]")


plain_values = st.recursive(
    st.none() | st.booleans() | st.integers(SMALLEST, LARGEST) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=30)
@given(st.dictionaries(st.text(), plain_values))
def test_what_passes_can_be_written_and_loaded(given: Mapping[str, Any]) -> None:
    """Every plain value stays as it is, except tuples, which become lists."""
    found = plain_fields(given, refuse_non_finite=True)

    assert found == json.loads(json.dumps(given))
    assert pickle.loads(pickle.dumps(found)) == found  # noqa: S301  # our own
    assert msgspec.json.decode(msgspec.json.encode(found)) == found
