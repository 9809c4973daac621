"""The parts of a worker with state, without its loop: records go in, answers and changes come out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from tests.builders import STATE, SUMS, summing_model
from tests.chunks import MODEL, P0, chunk, floats, record, signature, tracked
from tests.fakes import CHANGELOG
from worker.core.batching.batcher import Batcher, BatchPolicy
from worker.core.chunk import Chunk, Prediction, Refused
from worker.core.failures import RunFailure
from worker.core.ordering.ledger import OffsetLedger, Stretch
from worker.core.records import Answer, ClosedBy, Fields, Partition, Record, Rejection, StateUse
from worker.core.tensors.stacking import Split
from worker.state import ByKey, KeyStates, StatefulStacker

NOTHING: Any = None  # no partition is restored here, and nobody is told


def chunk_of(records: Sequence[Record], use: StateUse | None = None) -> Chunk:
    """A chunk of records that are rows of one float."""
    values = [one.value or b"" for one in records]
    rows = [len(value) // 4 for value in values]
    sizes = [len(value) for value in values]
    return replace(chunk(records=records, rows=rows, tensors=[values], sizes=sizes), state=use)


def keyed(offset: int, key: bytes, *values: float, partition: Partition = P0) -> Record:
    return record(offset, key=key, value=floats(*(values or (1.0,))), partition=partition)


class Rig:
    """Owns one of each part. `answers` has the rows of each answered record, or its error, by offset."""

    def __init__(
        self,
        *,
        states: KeyStates | None = None,
        ledger: OffsetLedger | None = None,
        max_rows: int = 4,
        refuse_missing: bool = False,
        ttl: float | None = None,
        can_take_back: bool = False,
    ) -> None:
        self.ledger = OffsetLedger() if ledger is None else ledger
        self.states = states or KeyStates(
            *(STATE, self.ledger, NOTHING, NOTHING),
            topic=CHANGELOG,
            ttl=ttl,
            can_take_back=can_take_back,
            date=lambda: inf,
        )
        self.batcher = Batcher({MODEL: BatchPolicy(max_rows=max_rows, max_bytes=1 << 20, linger=0.005)})
        self.by_key = ByKey(self.batcher)
        self.states.is_taken = self.by_key.is_taken
        self.stacker = StatefulStacker(signature(), gives=SUMS, states=self.states, refuse_missing=refuse_missing)
        self.answers: dict[int, list[float] | str] = {}
        self.changes: list[Fields] = []
        self.left: list[Stretch] = []
        self.ran: list[list[int]] = []  # the offsets of each batch

    def take(self, *records: Record, use: StateUse | None = None) -> Chunk:
        """Take these records, as one chunk."""
        made = tracked(self.ledger, chunk_of(records, use))
        self.by_key.add(made, 1.0)
        return made

    def run(self) -> dict[int, list[float] | str]:
        """Run and answer all that was taken."""
        while (group := self.batcher.drain()) is not None:
            self.ran.append([one.offset for part in group.chunks for one in part.records])
            batch, refused = self.stacker.stack(group.chunks, ClosedBy.DRAIN)
            predicted: list[Prediction] = []
            if batch is not None:
                outputs = summing_model(batch.all_feeds)
                assert not isinstance(outputs, RunFailure)
                split = self.stacker.split(batch, outputs)
                assert isinstance(split, Split)
                predicted, refused = split.predicted, [*refused, *split.refused]
            self.conclude(predicted, refused)
        return self.answers

    def conclude(self, predicted: Iterable[Prediction], refused: Iterable[Refused] = ()) -> None:
        """Answer these records, and let their keys' next records go on."""
        judged: list[tuple[Chunk, Prediction | Rejection]] = [(one.chunk, one) for one in predicted]
        judged += [(one.chunk.take(one.at, one.at + 1), one.rejection) for one in refused]
        whole = [_whole(*one) for one in judged]
        self.states.conclude([one for _, one in whole if isinstance(one, Prediction)])
        self.by_key.concluded([part for part, _ in judged], 2.0)
        for part, outcome in whole:
            if outcome is not None:
                assert part.places is not None
                self.leave(self.ledger.answer([(part.places, part.at, self._answers(part, outcome))]))

    def leave(self, stretches: Iterable[Stretch]) -> None:
        """Let these answers leave, with their states."""
        for stretch in stretches:
            self.changes += self.states.leave(stretch)
            self.left.append(stretch)
            self.ledger.settle([stretch])

    def _answers(self, part: Chunk, outcome: Prediction | Rejection) -> Sequence[Answer]:
        if isinstance(outcome, Rejection):
            self.answers[outcome.record.offset] = outcome.message
            return [outcome]
        start = outcome.start
        for one, rows in zip(part.records, part.rows, strict=True):
            self.answers[one.offset] = outcome.outputs[0][start : start + rows, 0].tolist()
            start += rows
        return [("responses", one.key, b"answer", None, 0, None) for one in part.records]


def _whole(part: Chunk, outcome: Prediction | Rejection) -> tuple[Chunk, Prediction | Rejection | None]:
    if part.reassembly is None:
        return part, outcome
    return part.reassembly.whole, part.reassembly.collect(part, outcome)
