"""Paths name fields of records; sources say what becomes of their values."""

from __future__ import annotations

import pytest

from worker.codecs.records.paths import Path, path_of
from worker.codecs.records.sources import Constant, Source, Vector, entry_of
from worker.core.failures import BadConfiguration


@pytest.mark.parametrize(
    ("given", "steps"),
    [
        ("amount", ("amount",)),
        ("customer.country", ("customer", "country")),
        ("items[*].price", ("items", "*", "price")),
        ("tags[*]", ("tags", "*")),
        (["a.b", "c"], ("a.b", "c")),
        ("$key", ("$key",)),
        ("$headers.Trace-Id", ("$headers", "trace-id")),
    ],
)
def test_a_path_is_a_text_or_a_list_of_names(given: object, steps: tuple[str, ...]) -> None:
    """Names are separated by dots; a name with a dot stands in a list."""
    assert path_of("x", given) == Path(steps)


@pytest.mark.parametrize("given", ["", "a..b", "a[0]", "a]", 3, [], ["a", 3], None])
def test_what_is_no_path_is_refused(given: object) -> None:
    """A refusal names the setting."""
    with pytest.raises(BadConfiguration, match=r"^\[records\] key: "):
        path_of("[records] key", given)


@pytest.mark.parametrize(
    ("given", "told"),
    [("a[*].b[*]", "through two arrays"), ("$offset", "no field of a Kafka record"), ("$headers", "no field of")],
)
def test_a_path_that_cannot_be_followed_is_refused(given: str, told: str) -> None:
    """Two arrays, and what a Kafka record has not."""
    with pytest.raises(BadConfiguration, match=told):
        path_of("x", given)


def test_a_path_prints_as_it_is_written() -> None:
    """Messages show the path that the operator wrote, and know its last name."""
    assert [str(path_of("x", given)) for given in ("a", "a.b", "a[*].b", "$headers.h")] == [
        "a",
        "a.b",
        "a[*].b",
        "$headers.h",
    ]
    assert path_of("x", "a[*].b").name == "b"
    assert path_of("x", "tags[*]").name == "tags"


def test_an_entry_is_a_field_a_vector_or_a_constant() -> None:
    """Each form of an entry is its own kind."""
    a = Source(Path(("a",)))
    assert entry_of("x", "a") == a
    assert entry_of("x", ["a", {"field": "b", "default": 0}]) == Vector((a, Source(Path(("b",)), 0)))
    assert entry_of("x", {"value": 0.5}) == Constant(0.5)
    assert entry_of("x", {"field": "a", "names": ["web", "app"]}) == Source(Path(("a",)), names={"web": 0, "app": 1})
    assert entry_of("x", {"field": "a", "names": {"web": 3}}) == Source(Path(("a",)), names={"web": 3})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([], "is empty"),
        ({"value": 1, "field": "a"}, "a constant"),
        ({"value": [1]}, "a constant"),
        ({"fild": "a"}, "there is no fild"),
        ({"default": 1}, "expected the path"),
        ({"field": "a", "default": [1]}, "default must be"),
        ({"field": "a", "as": "date"}, "as must be one of"),
        ({"field": "a", "epoch": "ms"}, "epoch is d, s, ms or us"),
        ({"field": "a", "as": "hour", "epoch": "h"}, "epoch is d, s, ms or us"),
        ({"field": "a", "names": "web"}, "names must be"),
        ({"field": "a", "names": {}}, "names must be"),
        ({"field": "a", "names": {"web": True}}, "names must be"),
        ({"field": "a", "names": ["web"], "as": "boolean"}, "not both"),
    ],
)
def test_a_wrong_entry_is_refused(given: object, told: str) -> None:
    """A refusal says what may stand there."""
    with pytest.raises(BadConfiguration, match=told):
        entry_of("[records.inputs] x", given)
