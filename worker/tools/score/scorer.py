"""Scores portions of a file with one model: reads, stacks, runs in batches, splits and writes as a worker does.

Requests of equal shapes are stacked together. If their inference fails, they run again in halves, until the request on
which the model fails is alone. Then the model's warm-up batch shows if the device is to blame. Rows of an array file
are one request, so that no row needs a Python object of its own. If that request is refused, its halves run again,
until each bad row is refused alone.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from threading import BoundedSemaphore, Lock

import numpy as np

from worker.assembled_model import batch_policy
from worker.codecs.codec import Codec
from worker.codecs.wire_contract import JSON, OCTETS, Wire
from worker.core.batching.batcher import Batcher, BatchPolicy
from worker.core.chunk import Batch, Chunk, Prediction, Reading
from worker.core.failures import Code, ModelBroken, RunFailure
from worker.core.records import Answer, Array, BatchKind, ClosedBy, Record, Rejection, ReplyForm
from worker.core.tensors.stacking import Stacker, halve, reject
from worker.inference.model import Model
from worker.settings.for_commands import ScoringSettings
from worker.tools.score.inputs import Rows

Portion = Rows | Sequence[Record]
Outcome = Prediction | Rejection
Scored = Answer | Outcome  # a line has an answer, and rows of an array file have an outcome


class Scorer:
    """Scores portions, several at once, but only as many threads run the model as there are lanes. Owns the counts."""

    def __init__(self, model: Model, settings: ScoringSettings) -> None:
        self.model = model
        self.batches = 0
        self.seconds = 0.0
        self._lanes = BoundedSemaphore(settings.batching.lanes)
        # No topic bounds an answer here, and the reader of the file knows how long a request may be.
        wire = Wire(
            *("", ""),
            max_request_bytes=sys.maxsize,
            max_json_bytes=settings.kafka.max_json_bytes,
            max_answer_bytes=sys.maxsize,
            non_finite_output=settings.model.non_finite_output,
        )
        self.codec = Codec([model.signature], wire, tell=lambda _: None)
        self.policy: BatchPolicy = batch_policy(settings.batching, model)
        self._batcher = Batcher({model.signature.key: self.policy})  # it sorts, and holds nothing
        self._remembering = Lock()  # codec and batcher remember forms and shapes, and one thread at a time may use them
        self._stacker = Stacker(
            model.signature,
            refuse_non_finite_input=settings.model.non_finite_input == "reject",
            refuse_non_finite_output=settings.model.non_finite_output == "error",
        )

    def portion(self, portion: Portion) -> Sequence[Scored]:
        """Returns the outcomes of a portion of rows or lines, in order. Raises `ModelBroken`."""
        if not isinstance(portion, Rows):
            return self.records(portion)
        if portion.accept == OCTETS:
            return list(self.rows(portion))
        return self.records([row.record() for row in portion.parts(1)])

    def records(self, records: Sequence[Record]) -> list[Answer]:
        """Returns the answer to each record, in order. Raises `ModelBroken`."""
        answers: dict[int, Answer] = {
            record.offset: Rejection(record, Code.RESOURCE_EXHAUSTED, record.unreadable, ReplyForm(JSON))
            for record in records
            if record.unreadable is not None
        }
        for outcome in self._outcomes([record for record in records if record.unreadable is None]):
            if isinstance(outcome, Rejection):
                answers[outcome.record.offset] = outcome
            else:
                with self._remembering:
                    written = self.codec.write(outcome)
                answers.update(zip([record.offset for record in outcome.chunk.records], written, strict=True))
        return [answers[record.offset] for record in records]

    def rows(self, rows: Rows) -> Iterator[Outcome]:
        """Yields the outcomes of these rows, in order: one outcome for all, or halves if one of them is bad."""
        (outcome,) = self._outcomes([rows.record()])
        if isinstance(outcome, Rejection) and rows.total > 1:
            for half in rows.parts(-(-rows.total // 2)):
                yield from self.rows(half)
        else:
            yield outcome

    def _outcomes(self, records: Sequence[Record]) -> Iterator[Outcome]:
        """Yields the outcomes of these records, in any order."""
        together = defaultdict[BatchKind, list[Chunk]](list)
        with self._remembering:
            chunks, rejections, _ = self.codec.read(records) if records else Reading((), ())
            for chunk in chunks:
                for kind, part in self._batcher.by_kind(chunk):
                    together[kind].append(part)
        yield from (rejection for _, rejection in rejections)
        for alike in together.values():
            shapes, size = alike[0].shapes[0], alike[0].sizes[0] // alike[0].rows[0]
            limit = self.policy.limit_of_rows(self.policy.buckets.padded(shapes), max(1, size))
            batch, refused = self._stacker.stack(alike, ClosedBy.SIZE)
            yield from (one.rejection for one in refused)
            if batch is not None:
                yield from self._judged(batch, limit.rows)

    def _judged(self, batch: Batch, most: int) -> Iterator[Outcome]:
        """Runs a batch, `most` rows at once, or else its parts. Raises `ModelBroken` if no request is to blame."""
        outputs = self._run(batch.feeds, most)
        split = outputs if isinstance(outputs, RunFailure) else self._stacker.split(batch, outputs)
        if not isinstance(split, RunFailure):
            if not split.predicted:  # refusals alone do not prove that the device works
                self._check_device()
            yield from (one.rejection for one in split.refused)
            yield from split.predicted
        elif split.loses_rows:
            raise ModelBroken(
                f"the model does not give a row for each that goes in ({split.message}), so results written before "
                "may be wrong: score the file again with --batch-size 1"
            )
        elif split.code is Code.RESOURCE_EXHAUSTED and most > 1:
            yield from self._judged(batch, most // 2)
        elif sum(map(len, batch.chunks)) > 1:
            for half in halve(batch):
                yield from self._judged(half, most)
        else:
            self._check_device()
            yield reject(batch.chunks[0], split).rejection

    def _run(self, feeds: Mapping[str, Array], most: int) -> Sequence[Array] | RunFailure:
        """Returns all outputs of these rows, `most` in a batch, or the first failure."""
        parts: list[Sequence[Array]] = []
        rows = len(next(iter(feeds.values())))
        with self._lanes:
            began = time.monotonic()
            for at in range(0, rows, most):
                outputs = self.model.run({name: array[at : at + most] for name, array in feeds.items()})
                if isinstance(outputs, RunFailure):
                    return outputs
                # Checked for each batch: in the sum, one row too few here and one too many there would go unnoticed.
                if any(output.shape[:1] != (min(most, rows - at),) for output in outputs):
                    return RunFailure("an output has not as many rows as went in", loses_rows=True)
                parts.append(outputs)
            self.batches += len(parts)
            self.seconds += time.monotonic() - began
        if len({tuple(output.shape[1:] for output in outputs) for outputs in parts}) > 1:
            return RunFailure("the shape of an output's rows depends on their neighbours")
        return parts[0] if len(parts) == 1 else [np.concatenate(of_output) for of_output in zip(*parts, strict=True)]

    def _check_device(self) -> None:
        if isinstance(failure := self.model.probe(), RunFailure):
            raise ModelBroken(f"the model fails on its own warm-up batch, which ran at start: {failure.message}")
