"""The kinds of records that are answered, and the array that has their rows: proposed where they are plain."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.tools.records.test_proposal import proposed, spec
from worker.tools.records.inputs import Entry
from worker.tools.records.proposal import Proposal

AMOUNT, COUNTRY = spec("amount"), spec("country", "BYTES")
PAYMENT: dict[str, Any] = {"type": "payment", "amount": 1.5, "country": "NL"}
REFUND: dict[str, Any] = {"type": "refund", "country": "NL", "of": 7}
ORDER: dict[str, Any] = {"country": "NL", "items": [{"amount": 1.5}, {"amount": 2.5}], "notes": [{"text": "a"}]}


def own(proposal: Proposal) -> dict[str, Entry]:
    """The entries of the section itself, and of the inputs."""
    return {entry.name: entry for entry in proposal.entries if entry.table in ("", "inputs")}


def test_the_kinds_that_have_the_fields_are_answered() -> None:
    """A field tells them from others, of which no record has a field that each of theirs has."""
    entries = own(proposed([AMOUNT, COUNTRY], *[PAYMENT, REFUND] * 2))

    assert entries["only"].value == {"type": ["payment"]}
    assert "2 of 4 records are of these kinds" in entries["only"].said
    assert "passed over: refund" in entries["only"].said
    assert entries["amount"].value == "amount"


@pytest.mark.parametrize(
    "others",
    [
        pytest.param([REFUND], id="one record may lack a field by chance"),
        pytest.param([REFUND, {**REFUND, "amount": 2}], id="some of that kind have it"),
        pytest.param([{**REFUND, "type": None}] * 2, id="the field is not always there"),
        pytest.param([{**REFUND, "type": ["refund"]}] * 2, id="it is no text"),
    ],
)
def test_kinds_that_are_not_plain_are_not_proposed(others: list[dict[str, Any]]) -> None:
    """Then every record is of the one kind, and a field that misses has a default."""
    entries = own(proposed([AMOUNT, COUNTRY], PAYMENT, PAYMENT, *others))

    assert "only" not in entries
    assert entries["amount"].value == {"field": "amount", "default": 0}


def test_kinds_with_the_same_fields_are_all_answered() -> None:
    """A channel or a country is no kind."""
    assert "only" not in own(proposed([AMOUNT], *[PAYMENT, {**PAYMENT, "type": "refund"}] * 2))


def test_the_array_that_alone_has_an_input_s_field_has_the_rows() -> None:
    """A field beside it is repeated."""
    entries = own(proposed([AMOUNT, COUNTRY], ORDER, ORDER))

    assert entries["rows"].value == "items"
    assert (entries["amount"].value, entries["country"].value) == ("items[*].amount", "country")


@pytest.mark.parametrize(
    ("inputs", "order"),
    [
        pytest.param([AMOUNT], {**ORDER, "amount": 1}, id="the record has the field itself"),
        pytest.param([spec("amount", "FP32", None)], ORDER, id="a padded axis takes them all"),
        pytest.param([AMOUNT], {**ORDER, "notes": [{"amount": 1}]}, id="two arrays have it"),
        pytest.param([spec("age")], ORDER, id="no array has it"),
    ],
)
def test_rows_that_are_not_plain_are_not_proposed(inputs: list[Any], order: dict[str, Any]) -> None:
    """Each record is one row then."""
    assert "rows" not in own(proposed(inputs, order, order))


def test_an_array_in_each_element_is_a_vector_of_its_row() -> None:
    """A vector of the whole record it cannot be."""
    order = {"items": [{"vector": [1.5, 2, 3]}, {"vector": [4, 5, 6]}]}

    entries = own(proposed([spec("vector", "FP32", 3)], order, order))

    assert (entries["rows"].value, entries["vector"].value) == ("items", "items[*].vector")


def test_an_array_that_may_be_empty_has_no_rows() -> None:
    """A worker would refuse the record."""
    assert "rows" not in own(proposed([AMOUNT], ORDER, {**ORDER, "items": []}))


def test_kinds_may_have_rows() -> None:
    """The others need not have the array."""
    entries = own(proposed([AMOUNT], *[{"type": "order", **ORDER}, REFUND] * 2))

    assert entries["only"].value == {"type": ["order"]}
    assert entries["rows"].value == "items"
