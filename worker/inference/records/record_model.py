"""A model of records: a loaded model whose inputs are prepared from records, and whose outputs become fields.

    feeds ── preparations ──▶ columns ── rows of about one length ──▶ runs ──▶ outputs ── conclusions ──▶ fields
                 └── rows that failed, or that are left for later: a `RunFailure` that has the others' fields ──┘

A batch is one run unless its rows are of unequal lengths. It is made before the first record comes; then it owns
nothing that changes, so several lanes may call `run` at once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from worker.core.failures import RowFault, RowsLost, RunFailure, Stop, failure_of_rows
from worker.core.records import Array
from worker.core.tensors.buckets import Axis, Spot
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec
from worker.inference.model import Model
from worker.inference.onnxruntime_errors import run_failure
from worker.inference.records.parts import Column, Conclusion, Preparation, RowsFailed
from worker.inference.records.rows_of_one_run import shared_runs
from worker.inference.session import RUN_ERRORS

# Elements of padding that cost as much as a run of its own. One core takes 0.1 ms for a token of MiniLM.
RUN_ON_CPU, RUN_ON_GPU = 32, 4096

Feeds = Mapping[str, Array]


class _Ready(NamedTuple):
    """The rows of a batch that are prepared, by their index there, and the inputs made of them."""

    rows: Sequence[int]
    columns: Mapping[str, Column]
    faults: dict[int, RowFault]  # of other rows
    left: Sequence[int]


class _Run(NamedTuple):
    """Some of the rows that are ready, by their index among these, and the model's inputs for them. None: all."""

    rows: Sequence[int] | None
    feeds: Feeds


class RecordModel:
    """Runs a model on batches of records."""

    def __init__(
        self,
        model: Model,
        preparations: Sequence[Preparation],
        conclusions: Sequence[Conclusion],
        states: Sequence[str] = (),
        most_tokens: int | None = None,
        takes: Sequence[TensorSpec] = (),
    ) -> None:
        """`states`: outputs that are next states, and stay as they are. `takes`: inputs that only conclusions need."""
        self._model = model
        self._preparations = preparations
        self._conclusions = conclusions
        self._outputs = [spec.name for spec in model.signature.outputs]
        self._states = [spec for spec in model.signature.outputs if spec.name in states]
        self._most_tokens = most_tokens
        made = {name for each in preparations for name in each.makes}
        self._passed = [spec for spec in model.signature.inputs if spec.name not in made]
        self._served = list({spec.name: spec for each in preparations for spec in each.takes}.values())
        self._served += [spec for spec in takes if spec not in self._served]
        self._run_is_worth = RUN_ON_GPU if model.is_accelerated else RUN_ON_CPU
        self._ends = bucket_ends(model.signature, made)
        self.signature = self._signature()

    def probe(self) -> Sequence[Array] | RunFailure:
        """Run the model's own warm-up batch."""
        return self._model.probe()

    def run(self, feeds: Feeds) -> Sequence[Array] | RunFailure:
        """Run a batch of records: the fields of their answers, in the order of the signature's outputs, or the failure.

        If single rows have faults, or are left for a later run, the failure names them, and has the others' fields.
        Raises `DeviceLost`.
        """
        try:
            return self._run(feeds)
        except Stop:
            raise
        except RUN_ERRORS as error:  # a preparation or a conclusion lacks memory, for example
            return run_failure(error)

    def _run(self, feeds: Feeds) -> Sequence[Array] | RunFailure:
        count = len(next(iter(feeds.values())))
        rows, columns, faults, left = self._ready(feeds, count)
        if len(rows) < count:
            if not rows:
                return failure_of_rows(faults, left)
            feeds = {name: array[rows] for name, array in feeds.items()}
        done: list[int] = []
        results: list[Sequence[Array]] = []
        for run in self._runs(feeds, columns, len(rows)):
            own = range(len(rows)) if run.rows is None else run.rows
            outputs = self._model.run(run.feeds)
            failure = outputs if isinstance(outputs, RunFailure) else self._lost(outputs, len(own))
            if failure is not None:
                return failure_of_rows(faults, left) if faults else failure
            wrong, fields = self._concluded(run, outputs, feeds)  # type: ignore[arg-type]  # no failure
            faults |= {rows[own[at]]: fault for at, fault in wrong.items()}
            if len(wrong) < len(own):
                done += [own[at] for at in range(len(own)) if at not in wrong] if wrong else own
                results.append(fields)
        joined = _in_order(results, done)
        return failure_of_rows(faults, left, joined) if faults or left or joined is None else joined

    def _ready(self, feeds: Feeds, count: int) -> _Ready:
        """Prepare the rows: each preparation takes those that the ones before it could prepare."""
        rows: Sequence[int] = range(count)
        columns: dict[str, Column] = {}
        faults: dict[int, RowFault] = {}
        left: list[int] = []
        for preparation in self._preparations:
            own = feeds if len(rows) == count else {name: array[rows] for name, array in feeds.items()}
            prepared = preparation.prepare(own)
            if gone := {*prepared.faults, *prepared.left}:
                faults |= {rows[at]: fault for at, fault in prepared.faults.items()}
                left += [rows[at] for at in prepared.left]
                well = [at for at in range(len(rows)) if at not in gone]
                rows = [rows[at] for at in well]
                columns = {name: column.of(well) for name, column in columns.items()}
                if not rows:
                    break
            columns |= prepared.columns
        return _Ready(rows, columns, faults, sorted(left))

    def _lost(self, outputs: Sequence[Array], rows: int) -> RunFailure | None:
        """The failure of a run with an output of another number of rows."""
        for name, output in zip(self._outputs, outputs, strict=True):
            if output.shape[:1] != (rows,):
                return RunFailure(str(RowsLost(name, rows, output.shape)), loses_rows=True)
        return None

    def _concluded(
        self, run: _Run, outputs: Sequence[Array], feeds: Feeds
    ) -> tuple[Mapping[int, RowFault], Sequence[Array]]:
        """The faults by the run's row, and the fields of its other rows."""
        named = dict(zip(self._outputs, outputs, strict=True))
        served = {
            spec.name: feeds[spec.name] if run.rows is None else feeds[spec.name][run.rows] for spec in self._served
        }
        given = {**run.feeds, **served}
        faults: dict[int, RowFault] = {}
        rows = list(range(len(outputs[0])))
        while rows:
            try:
                fields = [conclusion.conclude(named, given) for conclusion in self._conclusions]
            except RowsFailed as failed:
                faults |= {rows[at]: fault for at, fault in failed.faults.items()}
                well = [at for at in range(len(rows)) if at not in failed.faults]
                rows = [rows[at] for at in well]
                named, given = ({name: array[well] for name, array in some.items()} for some in (named, given))
            else:
                return faults, [*fields, *[named[spec.name] for spec in self._states]]
        return faults, ()

    def _runs(self, feeds: Feeds, columns: Mapping[str, Column], count: int) -> Sequence[_Run]:
        """The runs of a batch: one, unless its rows have unequal shapes."""
        passed = {spec.name: feeds[spec.name] for spec in self._passed}
        uneven = [column for column in columns.values() if not isinstance(column.rows, np.ndarray)]
        if not uneven:
            return [_Run(None, {**passed, **{name: _whole(column) for name, column in columns.items()}})]
        shapes = [
            tuple([of.rows[row].shape if of.pad is None else of.rows[row].shape[1:] for of in uneven])
            for row in range(count)
        ]
        padded = [column.rows for column in uneven if column.pad is not None]
        lengths = list(map(len, padded[0])) if padded else [0] * count
        if len(padded) > 1 and any(list(map(len, rows)) != lengths for rows in padded[1:]):
            lengths = [max(map(len, rows)) for rows in zip(*padded, strict=True)]
        return [
            _Run(
                rows,
                {
                    **{name: array[rows] for name, array in passed.items()},
                    **{name: _stacked(column, rows, length) for name, column in columns.items()},
                },
            )
            for rows, length in shared_runs(shapes, lengths, self._run_is_worth, self._most_tokens, self._ends)
        ]

    # What records are served

    def _signature(self) -> Signature:
        own = self._model.signature
        inputs = (*self._passed, *self._served)
        outputs = (*[conclusion.spec for conclusion in self._conclusions], *self._states)
        passed = {spec.name: at for at, spec in enumerate(self._passed)}
        axes = [_moved(axis, own, passed, outputs) for axis in own.axes]
        kept = tuple(axis for axis in axes if axis is not None)
        return replace(own, inputs=inputs, outputs=outputs, axes=kept)


def bucket_ends(signature: Signature, made: Collection[str]) -> Sequence[int] | None:
    """The lengths that prepared rows may have, where the operator named them (`BATCHING__BUCKETS`)."""
    for axis in signature.axes:
        if any(signature.inputs[spot.tensor].name in made and spot.dimension == 0 for spot in axis.inputs):
            return axis.boundaries
    return None


def _moved(axis: Axis, own: Signature, passed: Mapping[str, int], outputs: Sequence[TensorSpec]) -> Axis | None:
    """A padded axis of inputs that records feed as they are, in the served signature; None for others."""
    if any(own.inputs[spot.tensor].name not in passed for spot in axis.inputs):
        return None
    inputs = {Spot(passed[own.inputs[tensor].name], dim): pad for (tensor, dim), pad in axis.inputs.items()}
    there = {spec.name: at for at, spec in enumerate(outputs)}
    spots = [
        Spot(there[name], dim)
        for tensor, dim in axis.outputs
        if (name := own.outputs[tensor].name) in there and len(outputs[there[name]].dims) > dim
    ]
    return replace(axis, inputs=inputs, outputs=tuple(spots))


def _in_order(results: Sequence[Sequence[Array]], rows: Sequence[int]) -> Sequence[Array] | None:
    """The fields of all runs' rows, in the order of these; None: no row has any."""
    if len(results) < 2 and rows == sorted(rows):
        return results[0] if results else None
    places = np.argsort(rows)
    return [np.concatenate(parts)[places] for parts in zip(*results, strict=True)]


def _whole(column: Column) -> Array:
    assert isinstance(column.rows, np.ndarray)
    return column.rows


def _stacked(column: Column, rows: Sequence[int], length: int) -> Array:
    """The rows of one run, padded to this length along their first dimension."""
    if isinstance(column.rows, np.ndarray):
        return column.rows[rows]
    own: list[Any] = [column.rows[row] for row in rows]
    if column.pad is None or all(len(row) == length for row in own):
        return np.stack(own)
    whole = np.full((len(own), length, *own[0].shape[1:]), column.pad, own[0].dtype)
    for at, row in enumerate(own):
        whole[at, : len(row)] = row
    return whole
