"""Files cut in any way: every line is a record, and every row has the outcome that it has alone."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import cast

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.chunks import signature
from tests.meeting import meeting, met
from worker.codecs.wire_contract import OCTETS
from worker.core.chunk import Prediction
from worker.core.failures import Code, RunFailure
from worker.core.records import Array, Partition, Rejection
from worker.inference.model import Model
from worker.scorer import Scorer
from worker.settings.for_commands import load_scoring
from worker.tools.lines import lines as lines_of
from worker.tools.score.inputs import Rows, line_portions, plain
from worker.tools.score.portions import row_outcomes

MODEL = signature()
LONGEST = 5


@meeting("a line is too long", "a line is cut", "the last line has no end", "an empty line")
@given(
    lines=st.lists(st.binary(max_size=8).map(lambda b: b.replace(b"\n", b" ")), max_size=12),
    end=st.sampled_from([b"", b"\n"]),
    cuts=st.lists(st.integers(1, 9), min_size=1),
    at_once=st.integers(1, 5),
)
def test_lines_are_the_same_however_the_pipe_is_cut(
    lines: Sequence[bytes], end: bytes, cuts: Sequence[int], at_once: int
) -> None:
    """Lines are numbered from one, and too long lines are only counted."""
    content = b"\n".join(lines) + (end if lines else b"")
    expected = content.split(b"\n")[: -1 if content.endswith(b"\n") or not content else None]
    met("a line is too long", is_so=any(len(line) > LONGEST for line in expected))
    met("a line is cut", is_so=len(content) > cuts[0] and content[cuts[0] - 1 : cuts[0]] != b"\n")
    met("the last line has no end", is_so=content != b"" and not content.endswith(b"\n"))
    met("an empty line", is_so=b"" in expected)
    out, into = os.pipe()
    portions = line_portions(
        lines_of(out, "pipe", 0.0), partial(plain, Partition("pipe", 0), ()), LONGEST, lambda: at_once
    )
    records = []
    at = 0
    for cut in cuts:
        if part := content[at : at + cut]:
            os.write(into, part)
            at += cut
            records += next(portions, [])
    os.write(into, content[at:])
    os.close(into)
    records += [record for portion in portions for record in portion]
    os.close(out)

    assert [record.offset for record in records] == list(range(1, len(expected) + 1))
    for record, line in zip(records, expected, strict=True):
        assert record.value == (line if len(line) <= LONGEST else b"")
        assert (record.unreadable is not None) == (len(line) > LONGEST)
        assert record.unreadable is None or f"has {len(line)} bytes" in record.unreadable


class Doubling:
    """A model of one float that fails on guilty values, and on more rows than fit its memory."""

    signature = MODEL
    padding = None

    def __init__(self, guilty: set[int], memory: int) -> None:
        self.guilty = guilty
        self.memory = memory

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array] | RunFailure:
        (rows,) = feeds.values()
        if len(rows) > self.memory:
            return RunFailure("no memory", code=Code.RESOURCE_EXHAUSTED)
        return RunFailure("guilty") if self.guilty & set(rows[:, 0].tolist()) else [2 * rows[:, :1]]

    def probe(self) -> Sequence[Array]:
        return ()

    def most_rows(self, wanted: int) -> int:
        return wanted


@meeting("a bad row with neighbours", "all is well", "too little memory", "as lines")
@given(
    count=st.integers(1, 40),
    guilty=st.sets(st.integers(0, 39)),
    missing=st.sets(st.integers(0, 39), max_size=3),
    batch=st.integers(1, 9),
    memory=st.integers(1, 12),
    are_lines=st.booleans(),
)
def test_every_row_has_the_outcome_that_it_has_alone(
    count: int, guilty: set[int], missing: set[int], batch: int, memory: int, *, are_lines: bool
) -> None:
    """Each row has it once, whatever its neighbours."""
    settings = load_scoring(None, {"WORKER_MODEL__PATH": "model.onnx", "WORKER_BATCHING__MAX_BATCH_SIZE": str(batch)})
    scorer = Scorer(cast("Model", Doubling(guilty, memory)), settings)
    values = np.arange(count, dtype="<f4").reshape(count, 1)
    values[[row for row in missing if row < count]] = np.nan
    rows = Rows(Partition("rows", 0), 0, MODEL.inputs, [values], OCTETS)

    scored = scorer.records([row.record() for row in rows.parts(1)]) if are_lines else list(row_outcomes(scorer, rows))

    bad = {row for row in guilty | missing if row < count}
    met("a bad row with neighbours", is_so=bool(bad) and batch > 1 and count > 1)
    met("all is well", is_so=not bad)
    met("too little memory", is_so=memory < min(batch, count))
    met("as lines", is_so=are_lines)
    row = 0
    for outcome in scored:
        if isinstance(outcome, Rejection):
            assert (outcome.record.offset, row in bad) == (row, True)
            row += 1
            continue
        if isinstance(outcome, Prediction):
            results = outcome.outputs[0].reshape(-1).tolist()
        else:
            results = np.frombuffer((outcome[2] or b"")[-4:], "<f4").tolist()
        numbers = range(row, row + len(results))
        assert results == [2 * number for number in numbers]
        assert bad.isdisjoint(numbers)
        row += len(results)
    assert row == count
