"""The model that answers records without Kafka: one loaded in this process, or one in a host.

The operator's own code for records runs in a host, as in a worker: it may exit, crash or hang, and the command goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from threading import Lock

import numpy as np

from worker.assembled_model import ModelSections, begin_host, plain_section
from worker.core.chunk import Batch
from worker.core.failures import BadConfiguration, RunFailure
from worker.core.records import Array, ClosedBy, HostEnd
from worker.core.tensors.signature import Signature
from worker.inference.facts import ModelFacts, Runnable
from worker.inference.host.lanes import HostLanes
from worker.inference.model import Model
from worker.inference.model_loading import load_as_set
from worker.inference.records.making import record_model
from worker.inference.records.record_model import RecordModel
from worker.settings import Settings
from worker.settings.for_commands import ScoringSettings
from worker.state import StateLayout
from worker.terminal.command_line import split_signature


class HostedModel:
    """A served model in a process of its own, which a run may end. Any thread may call it, and one runs at a time.

    Owns the lanes.
    """

    def __init__(self, lanes: HostLanes, facts: ModelFacts) -> None:
        self.facts = facts
        self.signature = facts.signature
        self.device = facts.device
        self._lanes = lanes
        self._running = Lock()
        self._has_ended = False  # the process, at an earlier run

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array] | RunFailure:
        """Run a batch. Returns its outputs, or the failure. Raises `ModelBroken` if no process can be started."""
        rows = len(next(iter(feeds.values())))
        with self._running:
            batch = Batch((), feeds, rows, ClosedBy.SIZE, is_alone=self._has_ended and rows == 1)
            if batch.is_alone:  # it may be what the process took too long for, and must not take as long again
                self._lanes.resubmit([batch])
            else:
                self._lanes.submit(batch)
            outcome = self._outcome()
            self._has_ended |= isinstance(outcome, RunFailure) and outcome.ended_host
            return outcome

    def probe(self) -> Sequence[Array] | RunFailure:
        """Run the model's own warm-up batch. Raises as `run` does."""
        with self._running:
            self._lanes.probe()
            return self._outcome()

    def _outcome(self) -> Sequence[Array] | RunFailure:
        while not (done := self._lanes.finished(1.0)):
            pass
        [(_, outputs, failure, _)] = done
        return failure or outputs or ()


class _Unheard:
    """Implements `HostEvents` for a command, which tells in a record's answer why it has none."""

    def host_started(self, pid: int, seconds: float, why: str) -> None:
        pass

    def host_ended(self, end: HostEnd, why: str, batches: int) -> None:
        pass


def load_to_score(settings: ModelSections, closing: ExitStack) -> Model | HostedModel:
    """Load the model of these settings, in a host if code of the operator's runs with it; `closing` ends that.

    Raises `BadConfiguration`, and `ModelBroken` if a host ends while it loads the model.
    """
    return hosted(settings, closing) if wants_host(settings) else load_as_set(settings.model, settings.batching)


def wants_host(settings: ModelSections) -> bool:
    """True if code of the operator's answers records, unless a worker would have it in its own process, too.

    Rows of an array file stay here: with a model in Python that takes 50 µs a batch, 1,000,000 of them took 4.1 s here,
    and 10.7 s in a host (2026-11).
    """
    if settings.records is None or settings.model.host != "process":
        return False
    return settings.records.functions is not None or settings.model.path.suffix == ".py"


def hosted(settings: ModelSections, closing: ExitStack) -> HostedModel:
    """Load the model of these settings in a host, which `closing` ends. Raises as `load_to_score` does."""
    engine = begin_host(settings, _Unheard(), closing)()
    assert isinstance(engine.lanes, HostLanes)
    return HostedModel(engine.lanes, engine.facts)


def served(model: Model | HostedModel, settings: ScoringSettings | Settings) -> tuple[Runnable, Signature]:
    """The model that answers, or with `[records]` a model of records made of it. Raises `BadConfiguration`."""
    if settings.records is None:
        return model, model.signature
    made = model if isinstance(model, HostedModel) else _of_records(model, settings)
    layout, signature = split_signature(made.signature, settings.state)
    return (made if layout is None else _OfNewKeys(made, layout, signature)), signature


def _of_records(model: Model, settings: ScoringSettings | Settings) -> RecordModel:
    assert settings.records is not None
    plain = plain_section(settings.records)
    try:
        return record_model(model, settings.model, settings.batching, plain, settings.state.tensors)
    except BadConfiguration as refusal:
        raise BadConfiguration(f"{settings.model.path}: {refusal}") from refusal


class _OfNewKeys:
    """A model that remembers something of each key, and runs on rows of new keys."""

    def __init__(self, model: RecordModel | HostedModel, layout: StateLayout, signature: Signature) -> None:
        self._model = model
        self._initial = {tensor.spec.name: first for tensor, first in zip(layout.tensors, layout.initial, strict=True)}
        self._gives = [model.signature.output_index[spec.name] for spec in signature.outputs]

    def probe(self) -> Sequence[Array] | RunFailure:
        return self._model.probe()

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array] | RunFailure:
        rows = len(next(iter(feeds.values())))
        states = {name: np.repeat(first[None], rows, axis=0) for name, first in self._initial.items()}
        outcome = self._model.run({**feeds, **states})
        if not isinstance(outcome, RunFailure):
            return self._without_states(outcome)
        if outcome.outputs is None:
            return outcome
        return replace(outcome, outputs=self._without_states(outcome.outputs))

    def _without_states(self, outputs: Sequence[Array]) -> Sequence[Array]:
        return [outputs[at] for at in self._gives]
