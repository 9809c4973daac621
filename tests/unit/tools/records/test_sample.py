"""A sample says of each field what its values are, and how often it is missing; it says no value."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from worker.core.failures import BadConfiguration
from worker.core.records import Partition, Record
from worker.tools.records.sample import MOST_NAMES, Kind, Seen, look, of_file, sample_of

JPEG = b"\xff\xd8\xff\xe0" + bytes(100)


def records(*values: bytes | object) -> list[Record]:
    given = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    return [Record(Partition("t", 0), at, None, value, (), None) for at, value in enumerate(given)]


def seen(*values: Any) -> Seen:
    """A field that had these values."""
    (field,) = look([{"x": value} for value in values])
    return field


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2], Kind.WHOLE),
        ([1, 2.5], Kind.NUMBER),
        ([True], Kind.BOOLEAN),
        (["a", "12"], Kind.TEXT),
        (["12", "-1.50"], Kind.DECIMAL),
        (["2026-01-31T12:00:00Z"], Kind.INSTANT),
        (["2026-01-31"], Kind.INSTANT),
        (["2026-01"], Kind.TEXT),
        ([base64.b64encode(JPEG).decode()], Kind.PICTURE),
        ([None, 3], Kind.WHOLE),
        ([None], Kind.NULL),
        ([[1, 2]], Kind.WHOLES),
        ([[1], [2.5]], Kind.NUMBERS),
        ([[]], Kind.OTHER),
        ([["a"]], Kind.OTHER),
        ([[True]], Kind.OTHER),
    ],
    ids=str,
)
def test_a_field_has_the_kind_of_most_of_its_values(values: list[Any], kind: Kind) -> None:
    """A text that only looks like a number is a text among others."""
    assert seen(*values).kind == kind


def test_shares_are_told_and_no_value_is() -> None:
    """A share is never told as 0 or 100 % of what is neither."""
    fields = look([{"x": "secret"}, *[{"x": 1}] * 396, {"x": None}, {}, {}])

    assert str(fields[0]) == "x: whole numbers 99 %, texts 1 %, missing 1 %, null 1 %"
    assert fields[0].lacks == 3


def test_fields_are_found_at_any_depth_in_the_order_of_the_fullest_record() -> None:
    """An array of objects has its elements' fields, which are missing by element."""
    fields = look([{"b": 1}, {"a": 1, "b": {"c": 2}, "items": [{"p": 1}, {"p": 2, "q": 3}]}])

    assert [str(field.path) for field in fields] == ["a", "b.c", "items[*].p", "items[*].q", "b"]
    assert [field.lacks for field in fields] == [1, 1, 0, 1, 1]


def test_ids_are_told_from_measures_by_their_uniqueness() -> None:
    """A field that misses once names no record."""
    assert seen("a", "b").is_unique
    assert not seen("a", "a").is_unique
    assert not seen("a", None).is_unique


def test_few_different_texts_are_kept_and_no_more() -> None:
    """A topic of millions of names takes no more memory."""
    assert len(seen(*map(str, range(1000))).names) == MOST_NAMES + 1


def test_deep_records_and_records_with_endless_names_are_bounded() -> None:
    """They cost no more than others."""
    deep: dict[str, Any] = {"x": 1}
    for _ in range(500):
        deep = {"x": deep}

    assert len(look([deep])) == 1
    assert len(look([{str(at): 1 for at in range(5000)}])) == 2000


@pytest.mark.parametrize(
    ("values", "encoding", "envelope"),
    [
        ([{"a": 1}], "json", None),
        ([{"a": 1}, b"broken"], "json", None),
        ([b"a text", b"another"], "text", None),
        ([JPEG], "bytes", None),
        ([{"schema": {}, "payload": {"a": 1}}], "json", "payload"),
        ([{"schema": {}, "payload": {"op": "c", "source": {}, "after": {"a": 1}}}], "json", "payload.after"),
        ([{"op": "c", "source": {}, "after": {"a": 1}}, {"op": "d", "source": {}, "after": None}], "json", "after"),
        ([{"payload": 5}], "json", None),
    ],
    ids=str,
)
def test_encoding_and_envelope_are_found(
    values: list[bytes | Mapping[str, Any]], encoding: str, envelope: str | None
) -> None:
    """The fields are those of the records in their envelopes."""
    sample = sample_of(records(*values))

    assert (sample.encoding, sample.envelope) == (encoding, envelope)
    assert envelope is None or [str(field.path) for field in sample.fields] == ["a"]


def test_a_file_gives_its_first_lines_that_have_something(tmp_path: Path) -> None:
    """Each has its line's number."""
    (tmp_path / "r.jsonl").write_bytes(b'{"a":1}\n\n{"a":2}\n{"a":3}')

    found = of_file(tmp_path / "r.jsonl", 3)

    assert [(record.offset, record.value) for record in found] == [(1, b'{"a":1}'), (3, b'{"a":2}')]


@pytest.mark.parametrize("content", [None, b"\n"])
def test_without_records_there_is_nothing_to_propose(content: bytes | None, tmp_path: Path) -> None:
    """A file that is not there is named."""
    path = tmp_path / "r.jsonl"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(BadConfiguration, match=r"r\.jsonl: cannot be read: No such file|no records to look at"):
        sample_of(of_file(path, 10))


def test_fields_that_no_path_can_name_are_left_out() -> None:
    """An empty name and a star are none in a mapping, and `$key` is the record's key there."""
    fields = look([{"": 1, "*": 2, "$key": 3, "a": {"": 4, "*": 5, "$oid": 6}}])

    assert [str(seen.path) for seen in fields] == ["a.$oid"]


def test_a_table_is_no_sample(tmp_path: Path) -> None:
    """Its cells are texts, whatever the topic has."""
    with pytest.raises(BadConfiguration, match="give JSON lines"):
        of_file(tmp_path / "r.csv", 10)
