"""Scores records with one model and without Kafka: reads, stacks, runs in batches, splits and writes as a worker does.

Records of equal shapes are stacked together. If their inference fails, they run again in halves, or one by one if it
ended the model's process, until the one on which the model fails is alone. Then the model's warm-up batch shows if the
device is to blame. Where the model remembers something of each key, every record is of a new key.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from threading import BoundedSemaphore, Lock
from typing import Any

import numpy as np

from worker.assembled_model import batch_policy
from worker.assembled_records import RecordParts, forms_of, record_mapping
from worker.codecs.codec import Codec
from worker.codecs.records.projection import ReaderOf, from_json
from worker.codecs.wire_contract import JSON, Wire
from worker.core.batching.batcher import Batcher, BatchPolicy
from worker.core.chunk import Batch, Chunk, Prediction, Reading
from worker.core.failures import Code, ModelBroken, RowFault, RunFailure, failure_of_rows
from worker.core.records import Answer, Array, BatchKind, ClosedBy, Record, Rejection, ReplyForm
from worker.core.tensors.signature import Signature
from worker.core.tensors.stacking import Parted, Stacker, each_alone, halve, parted, reject
from worker.inference.model import Model
from worker.registry.awaiting import await_schemas
from worker.scored_model import HostedModel, served
from worker.settings import Settings
from worker.settings.for_commands import ScoringSettings

Outcome = Prediction | Rejection


class Scorer:
    """Scores records. Several threads may call it, but only as many run the model as there are lanes. Owns the counts.

    With `[records]` they are records, else requests. `signature` is what they are read by.
    """

    def __init__(
        self,
        model: Model | HostedModel,
        settings: ScoringSettings | Settings,
        parts_of: Callable[[Signature], RecordParts] | None = None,
    ) -> None:
        """`parts_of` gives what reads and writes the records of a signature; else `parts_as_json`.

        Raises `BadConfiguration`.
        """
        self.batches = 0
        self.seconds = 0.0
        self._lanes = BoundedSemaphore(settings.batching.lanes)
        self._model, self.signature = served(model, settings)
        parts = parts_as_json(settings, self.signature) if parts_of is None else parts_of(self.signature)
        self.mapping, self._framed = parts.mapping, parts.framed
        # No topic bounds an answer here, and the reader of the file knows how long a request may be.
        wire = Wire(
            *("", ""),
            max_request_bytes=sys.maxsize,
            max_json_bytes=settings.kafka.max_json_bytes,
            max_answer_bytes=sys.maxsize,
            non_finite_output=settings.model.non_finite_output,
            null_value=settings.kafka.null_value,
            records=self.mapping,
            framed=self._framed,
        )
        self.codec = Codec([self.signature], wire, tell=lambda _: None, form_of=parts.form_of)
        policy = batch_policy(settings.batching, model.facts if isinstance(model, HostedModel) else model)
        self.policy: BatchPolicy = replace(policy, buckets=self.signature.buckets)
        self._batcher = Batcher({self.signature.key: self.policy})  # it sorts, and holds nothing
        self._remembering = Lock()  # codec and batcher remember forms and shapes, and one thread at a time may use them
        self._stacker = Stacker(
            self.signature,
            refuse_non_finite_input=settings.model.non_finite_input == "reject",
            refuse_non_finite_output=settings.model.non_finite_output == "error",
        )

    def records(self, records: Sequence[Record]) -> list[Answer]:
        """Returns the answer to each record, in order. Raises `ModelBroken`."""
        answers: dict[tuple[Any, ...], Answer] = {
            record[:2]: Rejection(record, Code.RESOURCE_EXHAUSTED, record.unreadable, ReplyForm(JSON))
            for record in records
            if record.unreadable is not None
        }
        for outcome in self.outcomes([record for record in records if record.unreadable is None]):
            if isinstance(outcome, Rejection):
                answers[outcome.record[:2]] = outcome
            else:
                with self._remembering:
                    written = self.codec.write(outcome)
                answers.update(zip([record[:2] for record in outcome.chunk.records], written, strict=True))
        return [answers[record[:2]] for record in records]

    def outcomes(self, records: Sequence[Record]) -> Iterator[Outcome]:
        """Yields the outcomes of these records, in any order. Raises `ModelBroken`."""
        together = defaultdict[BatchKind, list[Chunk]](list)
        with self._remembering:
            if self._framed is not None:
                await_schemas(self._framed, records)
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
        yield from self._concluded(batch, self._run(batch.feeds, most), most)

    def _concluded(self, batch: Batch, outputs: Sequence[Array] | RunFailure, most: int) -> Iterator[Outcome]:
        """The outcomes of a batch that ran. Raises as `_judged` does."""
        split = outputs if isinstance(outputs, RunFailure) else self._stacker.split(batch, outputs)
        if isinstance(split, RunFailure):
            yield from self._of_parts(batch, split, most)
            return
        if not split.predicted:  # refusals alone do not prove that the device works
            self._check_device()
        yield from (one.rejection for one in split.refused)
        yield from split.predicted

    def _of_parts(self, batch: Batch, failure: RunFailure, most: int) -> Iterator[Outcome]:
        """Refuses the rows that failed, answers those with results, and runs others; else runs halves.

        Raises as `_judged` does.
        """
        done, outputs, rest, refused = parted(batch, failure) if failure.is_of_rows else Parted(None, (), batch, [])
        if done is not None or refused:
            yield from (one.rejection for one in refused)
            if done is not None:
                yield from self._concluded(done, outputs, most)
            if rest is not None:
                yield from self._judged(rest, most)
            return
        if failure.loses_rows:
            raise ModelBroken(
                f"the model does not give a row for each that goes in ({failure.message}), so results written before "
                "may be wrong: score the file again with --batch-size 1"
            )
        if (failure.code is Code.RESOURCE_EXHAUSTED or failure.left) and most > 1:
            yield from self._judged(batch, most // 2)
        elif sum(map(len, batch.chunks)) > 1:
            for part in each_alone(batch) if failure.ended_host else halve(batch):
                yield from self._judged(part, most)
        else:
            self._check_device()
            yield reject(batch.chunks[0], failure).rejection

    def _run(self, feeds: Mapping[str, Array], most: int) -> Sequence[Array] | RunFailure:
        """Returns all outputs of these rows, `most` in a batch, or the failure: that of single rows, or the first."""
        runs, rows = _Runs(), len(next(iter(feeds.values())))
        with self._lanes:
            began = time.monotonic()
            for at in range(0, rows, most):
                outcome = self._model.run({name: array[at : at + most] for name, array in feeds.items()})
                if (failure := runs.add(at, min(most, rows - at), outcome)) is not None:
                    return failure
            self.batches += len(runs.outputs)
            self.seconds += time.monotonic() - began
        return runs.joined()

    def _check_device(self) -> None:
        if isinstance(failure := self._model.probe(), RunFailure):
            raise ModelBroken(f"the model fails on its own warm-up batch, which ran at start: {failure.message}")


class _Runs:
    """The runs of one batch, whose rows go in one after the other. Owns their outputs, and the rows without any."""

    def __init__(self) -> None:
        self.outputs: list[Sequence[Array]] = []
        self._faults: dict[int, RowFault] = {}
        self._left: list[int] = []

    def add(self, at: int, size: int, outcome: Sequence[Array] | RunFailure) -> RunFailure | None:
        """Add the run of `size` rows from `at` on. Returns its failure if it is not of single rows."""
        if isinstance(outcome, RunFailure):
            if not outcome.is_of_rows:
                return outcome
            self._faults |= {at + row: fault for row, fault in outcome.faults.items()}
            left = outcome.left if outcome.outputs is not None else [*{*range(size)} - {*outcome.faults}]
            self._left += [at + row for row in left]
            if outcome.outputs is None:
                return None
            size, outcome = size - len(outcome.faults) - len(left), outcome.outputs
        # Checked for each run: in the sum, one row too few here and one too many there would go unnoticed.
        if any(output.shape[:1] != (size,) for output in outcome):
            return RunFailure("an output has not as many rows as went in", loses_rows=True)
        self.outputs.append(outcome)
        return None

    def joined(self) -> Sequence[Array] | RunFailure:
        """The outputs of all rows; or the rows that have none, and the outputs of the others."""
        if len({tuple(output.shape[1:] for output in outputs) for outputs in self.outputs}) > 1:
            return RunFailure("the shape of an output's rows depends on their neighbours")
        whole = (
            self.outputs[0]
            if len(self.outputs) == 1
            else [np.concatenate(each) for each in zip(*self.outputs, strict=True)]
        )
        if self._faults or self._left:
            return failure_of_rows(self._faults, self._left, whole if self.outputs else None)
        return whole


def parts_as_json(
    settings: ScoringSettings | Settings, signature: Signature, reader_of: ReaderOf | None = None
) -> RecordParts:
    """The parts that read and write records of a file as JSON, whatever the topics have. Raises `BadConfiguration`.

    `reader_of`: reads rows of a table as records.
    """
    if reader_of is None and settings.records is not None and settings.records.encoding == "registry":
        reader_of = from_json
    mapping = record_mapping(settings, signature, reader_of, skips_null=settings.kafka.null_value == "skip")
    return RecordParts(forms_of(mapping), mapping)
