"""A request's header about its key's state: read where the model has state, ignored elsewhere."""

from __future__ import annotations

import json

import pytest

from tests.unit.codecs.builders import AS_JSON, AS_ROWS, codecs, document, record, rejection, request
from worker.core.failures import Code
from worker.core.records import Partition, Record, Rejection, StateUse
from worker.core.runs import Run

ROWS = b"\0" * 12


@pytest.mark.parametrize("use", [*StateUse, None])
@pytest.mark.parametrize("more", [[], [("request-id", b"1")], [("request-id", b"1"), ("timeout-ms", b"5")]])
def test_a_request_says_what_becomes_of_the_state(use: StateUse | None, more: list[tuple[str, bytes]]) -> None:
    """The second reading uses the remembered headers."""
    codec = codecs(has_state=True)
    headers = [AS_ROWS, *more, *([("State", f" {use.value.upper()} ".encode())] if use else [])]

    assert request(codec, record(ROWS, *headers)).state == use
    assert request(codec, record(ROWS, *headers)).state == use
    assert request(codec, record(json.dumps(document()).encode(), AS_JSON, *headers[1:])).state == use


def test_another_word_is_refused() -> None:
    """The message lists the accepted words."""
    found = rejection(codecs(has_state=True), record(ROWS, AS_ROWS, ("state", b"forget")))

    assert found.message == "state: expected reset, delete, read, got 'forget'"


def test_without_state_the_header_means_nothing() -> None:
    """Publishers may use a header of that name for themselves."""
    assert request(codecs(), record(ROWS, AS_ROWS, ("state", b"whatever"))).state is None
    assert request(codecs(), record(ROWS, AS_ROWS, key=None)).state is None


def test_a_request_without_a_key_is_refused() -> None:
    """An empty key is a key."""
    codec = codecs(has_state=True)

    assert rejection(codec, record(ROWS, AS_ROWS, key=None)).message.startswith("expected a key")
    assert request(codec, record(ROWS, AS_ROWS, key=b"")).state is None


def test_a_key_that_has_no_place_beside_a_state_is_refused() -> None:
    """The limit is exact. Its neighbours still come as one run, and a model without state takes the key."""
    codec = codecs(has_state=True, max_key_bytes=4)
    rows = [record(ROWS, AS_ROWS, key=b"k%d" % n) for n in range(8)]

    found = rejection(codec, record(ROWS, AS_ROWS, key=b"12345"))
    first, *others = codec.decode_all([*rows, record(ROWS, AS_ROWS, key=b"12345")])

    assert (found.code, found.message) == (
        Code.RESOURCE_EXHAUSTED,
        "the key has 5 bytes, at most 4 fit into the changelog beside a state",
    )
    assert request(codec, record(ROWS, AS_ROWS, key=b"1234")).rows == 1
    assert request(codecs(), record(ROWS, AS_ROWS, key=b"12345")).rows == 1
    assert isinstance(first, Run)
    assert isinstance(others[-1], Rejection)


@pytest.mark.parametrize("form", ["rows", "json"])
def test_requests_travel_as_one_but_for_those_that_say_something(form: str) -> None:
    """Records without a key stay apart too; each gets what it would get alone."""
    headers = (AS_ROWS,) if form == "rows" else (AS_JSON, ("accept", b"application/x-protobuf"))
    value = ROWS if form == "rows" else json.dumps(document()).encode()
    plain = [Record(Partition("requests", 3), n, b"k%d" % n, value, headers, None) for n in range(16)]
    plain[8] = plain[8]._replace(headers=(*headers, ("state", b"read")))
    plain[9] = plain[9]._replace(key=None)

    found = codecs(has_state=True).decode_all(plain)

    runs = [one for one in found if isinstance(one, Run)]
    assert [one.record.offset for one in found if not isinstance(one, Run)][:2] == (
        [8, 9] if form == "rows" else [0, 1]
    )
    assert [key for run in runs for key in run.keys] == (
        [b"k%d" % n for n in (*range(8), *range(12, 16))] if runs else []
    )
    assert bool(runs) == (form == "rows")
    said = [one._replace(headers=(*headers, ("state", b"read"))) for one in plain[:8]]
    assert not any(isinstance(one, Run) for one in codecs(has_state=True).decode_all(said))


def test_forms_that_end_in_their_rows_travel_as_one_up_to_one_without_a_key() -> None:
    """These are binary-data requests that differ only in their rows."""
    head = json.dumps(
        {
            "inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "parameters": {"binary_data_size": 12}}],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    headers = (AS_ROWS, ("Inference-Header-Content-Length", b"%d" % len(head)))
    keys = [b"a", b"b", b"c", b"d", b"e", None, b"f"]
    records = [
        Record(Partition("requests", 3), n, key, head + bytes([n] * 12), headers, None) for n, key in enumerate(keys)
    ]

    first, *others = codecs(has_state=True).decode_all(records)

    assert isinstance(first, Run)
    assert first.keys == keys[:5]
    assert [type(one).__name__ for one in others] == ["Rejection", "Request"]
    said = [one._replace(headers=(*headers, ("state", b"read"))) for one in records[:5]]
    assert not any(isinstance(one, Run) for one in codecs(has_state=True).decode_all(said))
