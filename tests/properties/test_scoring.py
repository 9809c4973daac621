"""Files through any cut: every line is a record, and every row has one outcome, whatever is refused on the way."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import rejection, request, signature
from tests.meeting import meeting, met
from worker.codecs import Codecs, Wire
from worker.core.records import Prediction, Record, Reply
from worker.tools.score.files.npy_file import NpyFile
from worker.tools.score.files.sources import LineSource
from worker.tools.score.files.writers import ArrayWriter, LineWriter
from worker.tools.score.results import ScoreCounts

MODEL = signature()
CODECS = Codecs([MODEL], Wire("answers", "g"), tell=lambda _: None)
LONGEST = 5


@meeting(
    "a line is too long", "a line is cut", "the last line has no end", "the limit leaves some out", "an empty line"
)
@given(
    lines=st.lists(st.binary(max_size=8).map(lambda b: b.replace(b"\n", b" ")), max_size=12),
    end=st.sampled_from([b"", b"\n"]),
    cuts=st.lists(st.integers(1, 9), min_size=1),
    limit=st.none() | st.integers(1, 12),
    at_once=st.integers(1, 5),
)
def test_lines_are_the_same_however_the_pipe_is_cut(
    lines: Sequence[bytes], end: bytes, cuts: Sequence[int], limit: int | None, at_once: int
) -> None:
    """Numbered from one, and what is too long only counted."""
    content = b"\n".join(lines) + (end if lines else b"")
    expected = content.split(b"\n")[: -1 if content.endswith(b"\n") or not content else None][:limit]
    met("a line is too long", is_so=any(len(line) > LONGEST for line in expected))
    met("a line is cut", is_so=len(content) > cuts[0] and content[cuts[0] - 1 : cuts[0]] != b"\n")
    met("the last line has no end", is_so=content != b"" and not content.endswith(b"\n"))
    met("the limit leaves some out", is_so=limit is not None and len(lines) > limit)
    met("an empty line", is_so=b"" in expected)
    out, into = os.pipe()
    source = LineSource(out, "pipe", LONGEST, limit)
    records: list[Record] = []
    at = 0
    for cut in [*cuts, len(content)]:
        os.write(into, content[at : at + cut])
        at += cut
        records += source.poll(at_once, 0.0)
    os.close(into)
    while not source.is_over:
        records += source.poll(at_once, 0.0)
    os.close(out)

    assert [record.offset for record in records] == list(range(1, len(expected) + 1))
    for record, line in zip(records, expected, strict=True):
        assert record.value == (line if len(line) <= LONGEST else b"")
        assert (record.unreadable is not None) == (len(line) > LONGEST)
        assert record.unreadable is None or f"has {len(line)} bytes" in record.unreadable


@meeting("refused with neighbours that are not guilty", "stopped before the end", "all is well", "a second pass")
@given(
    rows=st.integers(1, 40),
    guilty=st.sets(st.integers(0, 39)),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    asked=st.integers(0, 40),
)
def test_every_row_has_one_outcome(rows: int, guilty: set[int], sizes: Sequence[int], asked: int) -> None:
    """Whatever was refused with its neighbours; and what is kept has no gap, wherever the first pass was stopped."""
    with tempfile.TemporaryDirectory() as folder:
        counts = ScoreCounts(4)
        descriptor = os.open(Path(folder) / "errors.jsonl", os.O_WRONLY | os.O_CREAT)
        writer = ArrayWriter(LineWriter(descriptor, "errors", CODECS.encode, "row", counts), rows, counts)
        writer.add(NpyFile(Path(folder) / "y.npy", MODEL.outputs[0], rows))
        reached = 0
        for at, size in enumerate([*sizes, 1]):
            if at and not writer.next_pass():
                break
            for piece in writer.pieces(lambda _, size=size: size):  # type: ignore[misc]  # a default mypy cannot see
                if not at and piece.start >= asked:
                    break
                answer(writer, piece, guilty)
                reached = max(reached, piece.stop)
        assert not writer.next_pass()
        assert writer.finished == reached
        writer.flush()
        writer.close(lambda _: None)
        os.close(descriptor)
        errors = (Path(folder) / "errors.jsonl").read_bytes().count(b"\n")
        results = [np.load(path).reshape(-1) for path in Path(folder).glob("*.npy")]

    refused = {row for row in guilty if row < reached}
    met("refused with neighbours that are not guilty", is_so=bool(refused) and sizes[0] > 1)
    met("stopped before the end", is_so=reached < rows)
    met("all is well", is_so=reached == rows and not refused)
    met("a second pass", is_so=bool(refused) and len(sizes) > 1)
    assert counts.outcomes == reached
    assert errors == counts.refusals == len(refused)
    if reached:
        [kept] = results
        assert [row for row in range(reached) if np.isnan(kept[row])] == sorted(refused)
        assert all(kept[row] == row for row in range(reached) if row not in refused)
    else:
        assert not results


def answer(writer: ArrayWriter, piece: range, guilty: set[int]) -> None:
    """Refuse the piece if it holds a guilty row, else answer each row with its number."""
    if guilty & set(piece):
        writer.write(piece.start, rejection()._replace(reply=Reply("application/json")))
    else:
        rows = np.array(piece, "<f4").reshape(-1, 1)
        writer.write(piece.start, Prediction(request(rows=len(piece)), (rows,)))
