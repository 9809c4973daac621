"""Scores chunks of a file with one model: decodes, stacks, runs in batches and splits as a worker does.

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
from threading import BoundedSemaphore
from typing import NamedTuple

import numpy as np

from worker.assembly import batch_policy
from worker.codecs.registry import Codecs
from worker.codecs.wire_contract import JSON, OCTETS, Wire
from worker.core.batching.batcher import BatchPolicy
from worker.core.failures import Code, ModelBroken, RunFailure
from worker.core.records import Array, ClosedBy, Outcome, Record, Rejection, Reply, Request
from worker.core.tensors.stacking import Stacker, reject
from worker.inference import Model
from worker.settings.for_commands import ScoringSettings
from worker.tools.score.inputs import Rows

Chunk = Rows | Sequence[Record]


class Scored(NamedTuple):
    """The outcome of line `number`, or of `rows` rows of an array file from row `number` on."""

    number: int
    outcome: Outcome
    rows: int = 1


class Scorer:
    """Scores chunks, several at once, but only as many threads run the model as there are lanes. Owns the counts."""

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
        self.codecs = Codecs([model.signature], wire, tell=lambda _: None)
        self.policy: BatchPolicy = batch_policy(settings.batching, model)
        self._stacker = Stacker(
            model.signature,
            refuse_non_finite_input=settings.model.non_finite_input == "reject",
            refuse_non_finite_output=settings.model.non_finite_output == "error",
        )

    def chunk(self, chunk: Chunk) -> Sequence[Scored]:
        """Returns the outcomes of a chunk of rows or lines, in order. Raises `ModelBroken`."""
        if not isinstance(chunk, Rows):
            return self.records(chunk)
        if chunk.accept == OCTETS:
            return list(self.rows(chunk))
        return self.records([row.record() for row in chunk.parts(1)])

    def records(self, records: Sequence[Record]) -> list[Scored]:
        """Returns the outcome of each record, in order. Raises `ModelBroken`."""
        found: dict[int, Outcome] = {}  # by offset
        together = defaultdict[object, list[Request]](list)
        for record in records:
            decoded = self._decode(record)
            if isinstance(decoded, Rejection):
                found[record.offset] = decoded
            else:
                together[self.policy.buckets.padded(decoded.shapes)].append(decoded)
        for requests in together.values():
            found |= {request.record.offset: outcome for request, outcome in self._judged(requests)}
        return [Scored(record.offset, found[record.offset]) for record in records]

    def rows(self, rows: Rows) -> Iterator[Scored]:
        """Yields the outcomes of these rows, in order: one outcome for all, or halves if one of them is bad."""
        ((number, outcome, _),) = self.records([rows.record()])
        if isinstance(outcome, Rejection) and rows.total > 1:
            for half in rows.parts(-(-rows.total // 2)):
                yield from self.rows(half)
        else:
            yield Scored(number, outcome, rows.total)

    def _decode(self, record: Record) -> Request | Rejection:
        if record.unreadable is not None:
            return Rejection(record, Code.RESOURCE_EXHAUSTED, record.unreadable, Reply(JSON))
        return self.codecs.decode(record)

    def _judged(self, requests: Sequence[Request], most: int | None = None) -> Iterator[tuple[Request, Outcome]]:
        """Runs requests of one shape, `most` rows in a batch; None: the settings' limit."""
        shapes, size = self.policy.buckets.padded(requests[0].shapes), requests[0].size // requests[0].rows
        most = most or self.policy.limit_of_rows(shapes, max(1, size)).rows
        batch, refused = self._stacker.stack(requests, ClosedBy.SIZE)
        yield from refused
        if batch is None:
            return
        outputs = self._run(batch.feeds, most)
        split = outputs if isinstance(outputs, RunFailure) else self._stacker.split(batch, outputs)
        if isinstance(split, RunFailure):
            yield from self._smaller(batch.requests, most, split)
            return
        if not split.predicted:  # refusals alone do not prove that the device works
            self._check_device()
        yield from split.refused
        yield from ((prediction.request, prediction) for prediction in split.predicted)

    def _smaller(
        self, requests: Sequence[Request], most: int, failure: RunFailure
    ) -> Iterator[tuple[Request, Outcome]]:
        """Runs failed requests again in smaller parts. Raises `ModelBroken` if no request is to blame."""
        if failure.loses_rows:
            raise ModelBroken(
                f"the model does not give a row for each that goes in ({failure.message}), so results written before "
                "may be wrong: score the file again with --batch-size 1"
            )
        if failure.code is Code.RESOURCE_EXHAUSTED and most > 1:
            yield from self._judged(requests, most // 2)
        elif len(requests) > 1:
            middle = len(requests) // 2
            yield from self._judged(requests[:middle], most)
            yield from self._judged(requests[middle:], most)
        else:
            self._check_device()
            yield requests[0], reject(requests[0], failure)

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
