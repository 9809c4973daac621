"""A request's header about its key's state: read where the model has state, ignored elsewhere."""

from __future__ import annotations

import json

import pytest

from tests.unit.codecs.builders import AS_JSON, AS_ROWS, codecs, document, record, rejection, request
from worker.core.failures import Code
from worker.core.records import Partition, Record, StateUse

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
    """The limit is exact. Its neighbours still come as one chunk, and a model without state takes the key."""
    codec = codecs(has_state=True, max_key_bytes=4)
    rows = [record(ROWS, AS_ROWS, key=b"k%d" % n) for n in range(8)]

    found = rejection(codec, record(ROWS, AS_ROWS, key=b"12345"))
    (chunk,), ((at, refused),), _ = codec.read([*rows, record(ROWS, AS_ROWS, key=b"12345")])

    assert (found.code, found.message) == (
        Code.RESOURCE_EXHAUSTED,
        "the key has 5 bytes, at most 4 fit into the changelog beside a state",
    )
    assert request(codec, record(ROWS, AS_ROWS, key=b"1234")).rows == 1
    assert request(codecs(), record(ROWS, AS_ROWS, key=b"12345")).rows == 1
    assert (len(chunk), at, refused.code) == (8, 8, Code.RESOURCE_EXHAUSTED)


@pytest.mark.parametrize("form", ["rows", "json"])
def test_with_state_a_chunk_has_only_neighbours(form: str) -> None:
    """The steps of a key stay in order; records without a key are refused by themselves."""
    headers = (AS_ROWS,) if form == "rows" else (AS_JSON, ("accept", b"application/x-protobuf"))
    value = ROWS if form == "rows" else json.dumps(document()).encode()
    given = [Record(Partition("requests", 3), n, b"k%d" % n, value, headers, None) for n in range(16)]
    given[8] = given[8]._replace(headers=(*headers, ("state", b"read")))
    given[12] = given[12]._replace(key=None)

    chunks, rejections, _ = codecs(has_state=True).read(given)

    assert [(list(chunk.at), chunk.state) for chunk in chunks] == [
        ([*range(8)], None),
        ([8], StateUse.READ),
        ([9, 10, 11, 13, 14, 15], None),
    ]
    assert [at for at, _ in rejections] == [12]
    chunks, *_ = codecs().read(given)
    assert [list(chunk.at) for chunk in chunks] == [[*range(16)]]
