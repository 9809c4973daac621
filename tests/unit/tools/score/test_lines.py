"""Lines of a file as records, from regular files and from pipes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.builders import signature
from worker.codecs import Codecs, Wire
from worker.core.failures import Code, Incomplete
from worker.core.records import Record, Rejection
from worker.tools.score.files.sources import HEADERS, LineCodec, LineSource


@contextmanager
def opened(folder: Path, content: bytes, longest: int = 100, limit: int | None = None) -> Iterator[LineSource]:
    path = folder / "requests.jsonl"
    path.write_bytes(content)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield LineSource(descriptor, "requests.jsonl", longest, limit)
    finally:
        os.close(descriptor)


def read(lines: LineSource, at_once: int = 2) -> list[Record]:
    records: list[Record] = []
    while not lines.is_over:
        records += lines.poll(at_once, 0.0)
    return records


def test_every_line_is_a_record_numbered_from_one(tmp_path: Path) -> None:
    """An empty one too, so that answers and lines stay side by side; the last needs no end."""
    with opened(tmp_path, b"a\n\nbb\r\nc") as lines:
        records = read(lines)

    assert [(r.offset, r.value) for r in records] == [(1, b"a"), (2, b""), (3, b"bb\r"), (4, b"c")]


def test_a_file_without_lines_is_over_at_once(tmp_path: Path) -> None:
    """No answers are right then."""
    with opened(tmp_path, b"") as lines:
        assert read(lines) == []


def test_no_more_lines_are_read_than_asked_for(tmp_path: Path) -> None:
    """The rest is not even looked at."""
    with opened(tmp_path, b"a\nb\nc\n" * 1000, limit=2) as lines:
        assert [r.value for r in read(lines)] == [b"a", b"b"]


def test_a_line_too_long_is_refused_as_the_worker_refuses_it(tmp_path: Path) -> None:
    """In the same words, though it is never held; the next line is read as usual."""
    long = b"x" * 1_000_000
    codec = Codecs([signature()], Wire("answers", "g", max_request_bytes=100), tell=lambda _: None)
    with opened(tmp_path, b"a\n" + long + b"\nb\n") as lines:
        records = read(lines)

    refused = LineCodec(codec).decode(records[1])
    would_be = codec.decode(records[1]._replace(value=long, unreadable=None))
    assert [r.value for r in records] == [b"a", b"", b"b"]
    assert isinstance(refused, Rejection)
    assert isinstance(would_be, Rejection)
    assert refused.code == Code.RESOURCE_EXHAUSTED
    assert (refused.message, refused.reply) == (would_be.message, would_be.reply)


def test_a_paused_file_brings_nothing(tmp_path: Path) -> None:
    """What a drain polls is thrown away."""
    with opened(tmp_path, b"a\n") as lines:
        lines.pause()
        paused = lines.poll(10, 0.0)
        lines.resume()

        assert (paused, len(lines.poll(10, 0.0))) == ((), 1)


def test_a_pipe_is_live_and_brings_what_is_there() -> None:
    """A line is a record once its end is written, and the pipe's end ends the last one."""
    out, into = os.pipe()
    lines = LineSource(out, "standard input", 100)
    os.write(into, b"a\nb")
    first = lines.poll(10, 1.0)
    nothing = lines.poll(10, 0.0)
    os.write(into, b"b\n")
    os.close(into)
    rest = read(lines)
    os.close(out)

    assert lines.is_live
    assert [r.value for r in (*first, *nothing, *rest)] == [b"a", b"bb"]


def test_a_folder_cannot_be_read(tmp_path: Path) -> None:
    """The operating system's reason, in a sentence."""
    descriptor = os.open(tmp_path, os.O_RDONLY)
    lines = LineSource(descriptor, "requests", 100)

    with pytest.raises(Incomplete, match="requests: cannot be read: Is a directory"):
        lines.poll(1, 0.0)
    os.close(descriptor)


def test_only_answers_as_json_are_asked_for() -> None:
    """They are lines, too."""
    assert dict(HEADERS)["accept"] == b"application/json"
