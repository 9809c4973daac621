"""The outcomes of a portion of a file: of lines, or of rows.

Rows of an array file are one request, so that no row needs a Python object of its own. If that request is refused, its
halves run again, until each bad row is refused alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from worker.codecs.wire_contract import OCTETS
from worker.core.records import Answer, Record, Rejection
from worker.scorer import Outcome, Scorer
from worker.tools.score.inputs import Rows

Portion = Rows | Sequence[Record]
Scored = Answer | Outcome  # a line has an answer, and rows of an array file have an outcome


def scored(scorer: Scorer, portion: Portion) -> Sequence[Scored]:
    """Returns the outcomes of a portion of rows or lines, in order. Raises `ModelBroken`."""
    if not isinstance(portion, Rows):
        return scorer.records(portion)
    if portion.accept == OCTETS:
        return list(row_outcomes(scorer, portion))
    return scorer.records([row.record() for row in portion.parts(1)])


def row_outcomes(scorer: Scorer, rows: Rows) -> Iterator[Outcome]:
    """Yields the outcomes of these rows, in order: one outcome for all, or halves if one of them is bad."""
    (outcome,) = scorer.outcomes([rows.record()])
    if isinstance(outcome, Rejection) and rows.total > 1:
        for half in rows.parts(-(-rows.total // 2)):
            yield from row_outcomes(scorer, half)
    else:
        yield outcome
