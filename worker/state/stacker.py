"""Puts states into a batch, and takes the next states out of the model's outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from worker.core.failures import Code, RunFailure
from worker.core.records import Array, Batch, ClosedBy, Prediction, Refused, Rejection, Request, RunStates, StateUse
from worker.core.runs import Run
from worker.core.tensors.specs import TensorSpec
from worker.core.tensors.stacking import Split, Stacker
from worker.state.states import KeyStates

# At least once, after a crash, if the changelog was compacted meanwhile.
APPLIED = (
    "it was applied to the state of its key before, and its answer cannot be repeated: the state before it is gone"
)
_LEAVE_NONE = (StateUse.READ, StateUse.DELETE)


@dataclass(frozen=True, slots=True)
class StatefulStacker(Stacker):
    """The stacker of a model with state. `signature` has only the inputs of requests and the outputs of answers.

    `gives` has all outputs of the model, in the order in which an inference returns them.
    """

    gives: tuple[TensorSpec, ...] = ()
    states: KeyStates = field(kw_only=True)
    refuse_missing: bool = False
    # Positions in `gives`: of the next states, in the order of the layout, and of the answers' outputs.
    _next: tuple[int, ...] = field(init=False)
    _visible: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Looks up the position of each output."""
        names = [spec.name for spec in self.gives]
        object.__setattr__(self, "_next", tuple(names.index(tensor.output) for tensor in self.states.layout.tensors))
        object.__setattr__(self, "_visible", tuple(names.index(spec.name) for spec in self.signature.outputs))

    def stack(self, requests: Sequence[Request], closed_by: ClosedBy) -> tuple[Batch | None, list[Refused]]:
        """Makes one batch of these requests with their keys' states, and rejections for requests that may not run."""
        unfit: list[Refused] = []
        if self.refuse_missing or self.states.is_unsure:
            unfit = [(r, why) for r in requests if (why := self._unfit(r)) is not None]
            gone = {id(request) for request, _ in unfit}
            requests = [r for r in requests if id(r) not in gone]
        batch, refused = super(StatefulStacker, self).stack(requests, closed_by)
        return batch, unfit + refused

    def _states_of(self, requests: Sequence[Request]) -> Mapping[str, Array]:
        return self.states.gather(requests)

    def split(self, batch: Batch, outputs: Sequence[Array]) -> Split | RunFailure:
        """Cuts the outputs into a prediction for each request, with its key's next state, or a rejection."""
        states = [outputs[at] for at in self._next]
        for tensor, before, state in zip(self.states.layout.tensors, batch.states.values(), states, strict=True):
            if state.shape != before.shape:
                return RunFailure(
                    f"output {tensor.output}: expected the next {tensor.spec.name} of {batch.rows} rows, "
                    f"shape {state.shape} came out",
                    loses_rows=state.shape[:1] != before.shape[:1],
                )
        split = super(StatefulStacker, self).split(batch, [outputs[at] for at in self._visible])
        if isinstance(split, RunFailure):
            return split
        spoilt = self._spoilt(batch, states)
        predicted = self._with_states(batch, split.predicted, RunStates(states))
        if spoilt:
            predicted = [prediction for prediction in predicted if id(prediction.request) not in spoilt]
        refused = [refused for refused in split.refused if id(refused[0]) not in spoilt]
        return Split(predicted, [*refused, *spoilt.values()])

    def _with_states(self, batch: Batch, predicted: list[Prediction], states: RunStates) -> list[Prediction]:
        if not self.signature.axes:
            return [tuple.__new__(Prediction, (*prediction[:4], states)) for prediction in predicted]
        # Predictions cut from padded outputs have arrays of their own, and no row numbers: the batch has their order.
        rows = {id(request): row for row, request in enumerate(batch.requests)}
        return [p._replace(states=RunStates(states.row(rows[id(p.request)]))) for p in predicted]

    def _spoilt(self, batch: Batch, states: Sequence[Array]) -> dict[int, Refused]:
        """Returns, by identity, the requests whose next state holds NaN or infinity."""
        floats = [state for state in states if state.dtype.kind == "f"] if self.refuse_non_finite_output else []
        if all(np.isfinite(state).all() for state in floats):
            return {}
        spoilt: dict[int, Refused] = {}
        start = 0
        for request in batch.requests:
            rows = slice(start, start + request.rows)
            start += request.rows
            if request.state in _LEAVE_NONE:
                continue
            if not all(np.isfinite(state[rows]).all() for state in floats):
                why = "the model's next state holds NaN or infinity; the state stays as it was"
                spoilt[id(request)] = (request, Rejection(request.record, Code.INTERNAL, why, request.reply))
        return spoilt

    def _unfit(self, request: Request) -> Rejection | None:
        """Returns the rejection of a request that its keys' states do not let run; silent if it was answered before."""
        if request.reassembly is not None and request.reassembly.carried is not None:  # a later row of a sequence
            return None
        records = request.records if isinstance(request, Run) else (request.record,)
        is_applied = self.states.is_unsure and any(map(self.states.is_ahead, records))
        if is_applied and self.states.settles_applied:
            return Rejection(request.record, Code.INTERNAL, APPLIED, request.reply, is_silent=True)
        if request.state is StateUse.RESET:
            return None
        if self.refuse_missing and not all(map(self.states.has, records)):
            why = "its key has no state, and WORKER_STATE__MISSING is refuse"
            return Rejection(request.record, Code.NOT_FOUND, why, request.reply)
        return Rejection(request.record, Code.INTERNAL, APPLIED, request.reply) if is_applied else None
