"""Outcomes as lines and as arrays."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.builders import record, rejection, signature, spec
from tests.builders import request as requested
from worker.codecs import Codecs, Wire
from worker.core.failures import BadConfiguration, Incomplete
from worker.core.ordering.ledger import OffsetLedger
from worker.core.records import Outcome, Partition, Prediction, Rejection, Reply
from worker.tools.score.files.npy_file import NpyFile
from worker.tools.score.files.writers import ArrayWriter, LineWriter, paths_for
from worker.tools.score.results import FileDelivery, ScoreCounts

MODEL = signature(spec("x", "FP32", (1,)))
CODECS = Codecs([MODEL], Wire("answers", "g"), tell=lambda _: None)
JSON = Reply("application/json", body_id="a7")


@pytest.fixture
def counts() -> ScoreCounts:
    return ScoreCounts(batch_rows=4)


@pytest.fixture
def lines(tmp_path: Path, counts: ScoreCounts) -> Iterator[LineWriter]:
    descriptor = os.open(tmp_path / "lines.jsonl", os.O_WRONLY | os.O_CREAT)
    yield LineWriter(descriptor, "lines.jsonl", CODECS.encode, "line", counts)
    os.close(descriptor)


def predicted(*rows: float) -> Prediction:
    request = requested(rows=len(rows))
    request.reply = JSON
    return Prediction(request, (np.array(rows, "<f4").reshape(-1, 1),))


def refused() -> Rejection:
    return rejection()._replace(reply=JSON)


def test_a_line_is_what_the_worker_would_send(lines: LineWriter, tmp_path: Path, counts: ScoreCounts) -> None:
    """To an error is added what only its headers would say."""
    outcomes: list[Outcome] = [predicted(1.5), refused()]
    for number, outcome in enumerate(outcomes, 1):
        lines.write(number, outcome)
    lines.flush()

    first, second = (tmp_path / "lines.jsonl").read_bytes().splitlines()
    assert first == CODECS.encode(outcomes[0])[0].value
    assert second == b'{"error":"no","id":"a7","code":"INVALID_ARGUMENT","line":2}'
    assert (counts.outcomes, counts.refusals, counts.refused) == (2, 1, {"INVALID_ARGUMENT": (1, 2)})


def test_lines_wait_for_company_until_they_are_flushed(lines: LineWriter, tmp_path: Path) -> None:
    """A write for each would cost more than the answer."""
    lines.write(1, predicted(1))
    before = (tmp_path / "lines.jsonl").stat().st_size
    lines.flush()
    lines.flush()

    assert before == 0
    assert (tmp_path / "lines.jsonl").read_bytes().count(b"\n") == 1


def test_a_full_disk_is_a_sentence_and_not_tried_twice(counts: ScoreCounts) -> None:
    """What waited is lost, and said to be."""
    descriptor = os.open("/dev/full", os.O_WRONLY)
    lines = LineWriter(descriptor, "lines.jsonl", CODECS.encode, "line", counts)
    lines.write(1, predicted(1))

    with pytest.raises(Incomplete, match=r"lines.jsonl: cannot be written to: No space left on device"):
        lines.flush()
    lines.flush()
    os.close(descriptor)


@pytest.fixture
def arrays(tmp_path: Path, lines: LineWriter, counts: ScoreCounts) -> ArrayWriter:
    writer = ArrayWriter(lines, 10, counts)
    writer.add(NpyFile(tmp_path / "y.npy", MODEL.outputs[0], 10))
    return writer


def answer(writer: ArrayWriter, size: int, guilty: int = -1, stop: int = 10) -> None:
    """One pass, up to the row `stop`; the pieces that hold the guilty row are refused."""
    for piece in list(writer.pieces(lambda _: size)):
        if piece.stop <= stop:
            writer.write(piece.start, refused() if guilty in piece else predicted(*piece))


def loaded(path: Path) -> list[float]:
    return [float(row) for row in np.load(path).reshape(-1)]


def test_a_bad_row_costs_its_neighbours_nothing(arrays: ArrayWriter, tmp_path: Path, counts: ScoreCounts) -> None:
    """Asked again in smaller pieces, it is refused alone."""
    answer(arrays, 4, guilty=6)
    seen = [arrays.finished]
    while arrays.next_pass():
        answer(arrays, 1, guilty=6)
        seen.append(arrays.finished)
    arrays.close(pytest.fail)

    assert seen == [4, 10]
    assert np.isnan(loaded(tmp_path / "y.npy")[6])
    assert [r for r in loaded(tmp_path / "y.npy") if not np.isnan(r)] == [0, 1, 2, 3, 4, 5, 7, 8, 9]
    assert (counts.outcomes, counts.refused) == (10, {"INVALID_ARGUMENT": (1, 6)})


def test_what_was_not_asked_before_a_stop_is_not_asked_again(arrays: ArrayWriter, tmp_path: Path) -> None:
    """What was refused is: without it, no row after it could be kept."""
    told: list[str] = []
    answer(arrays, 2, guilty=3, stop=6)
    assert arrays.finished == 2

    assert arrays.next_pass()
    answer(arrays, 1)
    assert not arrays.next_pass()
    arrays.close(told.append)

    assert loaded(tmp_path / "y.partial.npy") == [0, 1, 2, 3, 4, 5]
    assert told == [f"{tmp_path / 'y.partial.npy'} has the results of the first 6 rows"]


def test_an_end_in_the_middle_keeps_the_rows_before_the_first_without_outcome(
    arrays: ArrayWriter, tmp_path: Path
) -> None:
    """A device that breaks may leave a gap, and rows behind it."""
    answer(arrays, 2, guilty=3)
    arrays.close(lambda _: None)

    assert loaded(tmp_path / "y.partial.npy") == [0, 1]


def test_several_outputs_have_a_file_each() -> None:
    """By their names, as far as a file's name can hold them."""
    two = signature(outputs=[spec("total"), spec("model/dense:0")])
    clash = signature(outputs=[spec("a/b"), spec("a:b")])

    assert paths_for(Path("f/out.npy"), MODEL) == [Path("f/out.npy")]
    assert paths_for(Path("f/out.npy"), two) == [Path("f/out.total.npy"), Path("f/out.model_dense_0.npy")]
    with pytest.raises(BadConfiguration, match="would share a file"):
        paths_for(Path("out.npy"), clash)


def test_what_is_written_is_settled(lines: LineWriter, counts: ScoreCounts) -> None:
    """In order; then nothing is left to wait for."""
    ledger = OffsetLedger()
    delivery = FileDelivery(ledger, lines)
    place = ledger.track(record(1, partition=Partition("lines", 0)), 1, 4, 0.0)
    before = delivery.is_idle

    delivery.send(ledger.answer([(place, predicted(1))]))

    assert (before, delivery.is_idle) == (False, True)
    assert counts.outcomes == 1
    assert place.outcome is None


def test_progress_is_shown_now_and_then(counts: ScoreCounts) -> None:
    """Not at every turn of the loop."""
    shown: list[int] = []
    counts.show = shown.append
    for turn in range(100):
        counts.outcomes = turn
        counts.turned(turn * 0.01, 0)

    assert 9 <= len(shown) <= 11


def test_an_errand_counts_as_the_batches_it_is(counts: ScoreCounts) -> None:
    """The summary tells inferences."""
    for rows in (10, 4, 1):
        counts.batch_ran(rows, 0.5, None)

    assert (counts.batches, counts.rows, counts.model_seconds) == (5, 15, 1.5)
