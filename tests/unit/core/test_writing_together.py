"""Chunks of a batch whose answers are written together get the answers that each would get by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tests.chunks import MODEL, P0, P1, Q0, chunk
from worker.core.chunk import Chunk, Prediction
from worker.core.records import NO_IDS, Answer, Array, Ids, ModelKey, ReplyForm
from worker.core.writing_together import joined, write_together


class Writer:
    """Answers each record with its row and its offset. It notes how many records it was given."""

    def __init__(self) -> None:
        self.given: list[int] = []

    def write(self, prediction: Prediction) -> Sequence[Answer]:
        own, outputs, start, _ = prediction
        self.given.append(len(own))
        return [
            (str(each.partition), None, bytes([outputs[0][start + at], each.offset]), [], 0, None)
            for at, each in enumerate(own.records)
        ]


def predictions(*chunks: Chunk, outputs: Sequence[Array] = (np.arange(10, dtype="u1"),)) -> list[Prediction]:
    """Predictions whose rows follow one another."""
    made, start = [], 0
    for each in chunks:
        made.append(Prediction(each, outputs, start))
        start += sum(each.rows)
    return made


def alone(predicted: Sequence[Prediction]) -> list[Sequence[Answer]]:
    return [Writer().write(each) for each in predicted]


def test_chunks_of_several_partitions_are_written_by_one_call() -> None:
    """Each chunk gets its own answers back."""
    given = predictions(chunk(3, 4), chunk(8, partition=P1), chunk(1, 2, partition=Q0))
    writer = Writer()

    assert write_together(writer.write, given) == alone(given)
    assert writer.given == [5]


def test_answers_of_other_forms_models_and_runs_are_written_by_themselves() -> None:
    """So are those behind a row without a result."""
    own, other = chunk(3), chunk(4, partition=P1)
    for odd in (replace(other, form=ReplyForm("other")), replace(other, model=ModelKey(MODEL.name, "2"))):
        writer = Writer()
        assert write_together(writer.write, given := predictions(own, odd)) == alone(given)
        assert writer.given == [1, 1]
    first, second = predictions(own, other)
    for apart in (second._replace(start=2), second._replace(outputs=[np.arange(10, dtype="u1")])):
        writer = Writer()
        assert write_together(writer.write, [first, apart]) == alone([first, apart])
        assert writer.given == [1, 1]


def test_no_prediction_needs_no_call() -> None:
    """All records of a run may have been refused."""
    assert write_together(Writer().write, []) == []


def test_columns_are_joined_in_the_order_of_the_chunks() -> None:
    """A record without ids stands beside others that have some."""
    first = replace(chunk(1, 2, sizes=[5, 6]), kept=["a", "b"], answer_keys=[b"k", b"l"])
    second = replace(chunk(7, partition=P1, ids=[Ids("x")], sizes=[9]), kept=["c"], answer_keys=[b"m"])

    both = joined([first, second])

    assert [each.source for each in both.records] == [f"{P0}/1", f"{P0}/2", f"{P1}/7"]
    assert (both.sizes, both.ids) == ([5, 6, 9], [NO_IDS, NO_IDS, Ids("x")])
    assert (both.kept, both.answer_keys, len(both)) == (["a", "b", "c"], [b"k", b"l", b"m"], 3)
    assert (joined([chunk(1), chunk(2)]).kept, joined([chunk(1), chunk(2)]).ids) == (None, None)
