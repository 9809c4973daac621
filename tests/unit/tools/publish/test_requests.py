"""Requests to publish: lines in order, the meaning of each line, and requests made up for a model."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from worker.core.failures import BadConfiguration
from worker.tools import lines as tool_lines
from worker.tools.lines import lines as lines_of
from worker.tools.publish.requests import Publishable, read_line, read_lines

BODY = b'{"inputs":[]}'
AS_JSON = (("content-type", b"application/json"),)
Lines = Iterator[Publishable | None]


def line(**members: Any) -> bytes:
    return json.dumps(members).encode()


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[bytes], Lines]]:
    """Makes a file with this content, and reads it as `publish` does."""
    with ExitStack() as files:

        def lines(content: bytes) -> Lines:
            path = tmp_path / "requests.jsonl"
            path.write_bytes(content)
            return read_lines(lines_of(files.enter_context(path.open("rb")).fileno(), path.name), path.name, read_line)

        yield lines


def values(source: Lines) -> list[bytes | None]:
    return [request.value for request in source if request is not None]


def test_lines_come_in_order_and_empty_ones_not_at_all(opened: Callable[[bytes], Lines]) -> None:
    """Line ends may differ or be missing at the end, and a line may be longer than a block of the reader."""
    long = b'{"value": "%b"}' % (b"x" * (2 * tool_lines.BLOCK))
    content = b"\n".join([BODY, b"", b"  ", BODY + b"\r", long, b'{"value": "last"}'])

    assert values(opened(content)) == [BODY, BODY, b"x" * (2 * tool_lines.BLOCK), b"last"]


def test_an_odd_line_is_told_by_its_number(opened: Callable[[bytes], Lines]) -> None:
    """The requests before it have been handed on."""
    source = opened(BODY + b"\n\n{}\n")

    assert next(source) is not None
    with pytest.raises(BadConfiguration, match=r"requests.jsonl, line 3: neither a request"):
        next(source)


def test_a_line_without_end_is_refused(opened: Callable[[bytes], Lines], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused before it fills the memory."""
    monkeypatch.setattr(tool_lines, "LONGEST", 100)

    with pytest.raises(BadConfiguration, match="more than 100 bytes"):
        list(opened(b"x" * 101))


def test_a_silent_pipe_gives_nothing_yet() -> None:
    """So the publisher can attend to requests under way. A closed pipe is the end."""
    reads, writes = os.pipe()
    source = read_lines(lines_of(reads, "standard input", 0.0), "standard input", read_line)

    assert next(source) is None
    os.write(writes, BODY[:3])
    assert next(source) is None
    os.write(writes, BODY[3:] + b"\n")
    assert next(source) == Publishable(BODY, headers=AS_JSON)
    os.close(writes)
    assert list(source) == []
    os.close(reads)


def test_a_request_is_published_to_the_byte() -> None:
    """Spacing and unknown members are kept."""
    body = b'{ "inputs" : [],  "parameters": {"x": 1.50} }'

    assert read_line(body) == Publishable(body, None, AS_JSON)


@pytest.mark.parametrize(
    ("odd", "told"),
    [
        (b"{ broken", '{"value": "..."} publishes any text'),
        (b"PK\x03\x04\xff", '{"value_base64": "..."} any bytes'),
        (b"[1]", "neither a request"),
        (b"{}", "neither a request"),
        (line(value="", partitions=3), "no member 'partitions'"),
        (line(key="k"), "a whole record is an object with `value`"),
        (line(value=None, omitted={"value": "5000000 bytes", "key": "9 bytes"}), "lacks the record's value and key"),
        (line(value="", value_base64=""), "`value` or `value_base64`, not both"),
        (line(value_base64="*"), "`value_base64` must be a string of base64"),
        (line(value_base64=7), "`value_base64` must be a string of base64"),
        (line(value="", headers=[1]), "`headers` and `headers_base64` are objects"),
        (line(value="", headers_base64={"h": "*"}), "`headers_base64: h` must be a string of base64"),
    ],
)
def test_a_line_that_is_neither_says_what_is_wrong(odd: bytes, told: str) -> None:
    """The error does not quote Python's own message."""
    with pytest.raises(BadConfiguration) as failure:
        read_line(odd)

    assert told in str(failure.value)


def test_what_the_tools_print_can_be_published() -> None:
    """The place where a record lay, and a dead letter's reason, are no part of it."""
    record = {"topic": "t", "partition": 1, "offset": 2, "timestamp_ms": 3, "key": "k", "headers": {}}
    letter = {"place": "d/0/1", "time_ms": 1, "request": "t/0/1", "group": "g", "code": "INTERNAL", "message": "no"}

    assert read_line(line(**record, record={"a": 1.5})) == Publishable(b'{"a": 1.5}', b"k")
    assert read_line(line(**letter, omitted={}, value="text")) == Publishable(b"text", None)
