"""Puts states into a batch, and takes the next states out of the model's outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from worker.core.chunk import Batch, Chunk, Refused, refusal
from worker.core.failures import Code, RunFailure
from worker.core.records import Array, ClosedBy, StateUse
from worker.core.tensors.specs import TensorSpec
from worker.core.tensors.stacking import Split, Stacker
from worker.state.states import KeyStates

# At least once, after a crash, if the changelog was compacted meanwhile.
APPLIED = (
    "it was applied to the state of its key before, and its answer cannot be repeated: the state before it is gone"
)
NO_STATE = "its key has no state, and WORKER_STATE__MISSING is refuse"
SPOILT = "the model's next state holds NaN or infinity; the state stays as it was"
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

    def stack(self, chunks: Sequence[Chunk], closed_by: ClosedBy) -> tuple[Batch | None, list[Refused]]:
        """Makes one batch of these records with their keys' states, and refusals of the records that may not run."""
        unfit: list[Refused] = []
        if self.refuse_missing or self.states.is_unsure:
            chunks = [part for chunk in chunks if (part := self._fit(chunk, unfit)) is not None]
        batch, refused = super(StatefulStacker, self).stack(chunks, closed_by)
        return batch, unfit + refused

    def _states_of(self, chunks: Sequence[Chunk]) -> Mapping[str, Array]:
        return self.states.gather(chunks)

    def split(self, batch: Batch, outputs: Sequence[Array]) -> Split | RunFailure:
        """The predictions of a batch, with the next states, and refusals of the records without a usable result."""
        states = [outputs[at] for at in self._next]
        for tensor, before, state in zip(self.states.layout.tensors, batch.states.values(), states, strict=True):
            if state.shape != before.shape:
                return RunFailure(
                    f"output {tensor.output}: expected the next {tensor.spec.name} of {batch.rows} rows, "
                    f"shape {state.shape} came out",
                    loses_rows=state.shape[:1] != before.shape[:1],
                )
        split = self._parted(batch, [outputs[at] for at in self._visible], self._spoilt(batch, states))
        if isinstance(split, RunFailure):
            return split
        return Split([prediction._replace(states=states) for prediction in split.predicted], split.refused)

    def _spoilt(self, batch: Batch, states: Sequence[Array]) -> Mapping[int, str]:
        """The records (by their index in the batch) whose next state holds NaN or infinity."""
        if not self.refuse_non_finite_output:
            return {}
        specs = [tensor.spec for tensor in self.states.layout.tensors]
        found = self._non_finite(batch.chunks, batch.rows, specs, states)
        if not found:
            return {}
        leave_one = [chunk.state not in _LEAVE_NONE for chunk in batch.chunks for _ in range(len(chunk))]
        return {at: SPOILT for at in found if leave_one[at]}

    def _fit(self, chunk: Chunk, unfit: list[Refused]) -> Chunk | None:
        """The records that their keys' states let run; adds refusals of the others, silent if they were answered."""
        if chunk.reassembly is not None and chunk.reassembly.carried is not None:  # a later row of a sequence
            return chunk
        states, none = self.states, np.zeros(len(chunk), np.bool_)
        ahead = states.are_ahead(chunk) if states.is_unsure else none
        missing = ~states.has(chunk) if self.refuse_missing and chunk.state is not StateUse.RESET else none
        if states.settles_applied:
            missing &= ~ahead
        else:
            ahead = none if chunk.state is StateUse.RESET else ahead & ~missing
        again = [refusal(chunk, at, Code.INTERNAL, APPLIED) for at in np.flatnonzero(ahead).tolist()]
        if states.settles_applied:
            again = [one._replace(rejection=one.rejection._replace(is_silent=True)) for one in again]
            states.applied_before([one.rejection.record for one in again])
        unfit += again
        unfit += [refusal(chunk, at, Code.NOT_FOUND, NO_STATE) for at in np.flatnonzero(missing).tolist()]
        fit = np.flatnonzero(~(ahead | missing)).tolist()
        return chunk.pick(fit) if fit else None
