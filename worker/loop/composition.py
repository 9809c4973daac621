"""The loop put together of its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from worker.core.batching.back_pressure import Intake
from worker.core.batching.batcher import Batcher
from worker.core.deadlines import Punctuality
from worker.core.ordering.ledger import OffsetLedger
from worker.core.records import ModelKey
from worker.core.rejections import FirstRejections, Rejections
from worker.core.tensors.stacking import Stacker
from worker.loop.admission import Admission
from worker.loop.checkpoint import Checkpoint
from worker.loop.conduct import Conduct
from worker.loop.decoding import Decoding
from worker.loop.dispatch import Dispatch
from worker.loop.outcomes import Outcomes
from worker.loop.quarantine import Quarantine
from worker.loop.steps import Steps
from worker.loop.suspects import Suspects
from worker.loop.worker import Worker
from worker.ports import Codec, Delivery, Events, IsolationNotes, Lanes, Offsets, Signals, Source
from worker.state.by_key import ByKey
from worker.state.states import KeyStates


def compose(  # noqa: PLR0913  # names every part once
    *,
    source: Source,
    offsets: Offsets,
    notes: IsolationNotes,
    codec: Codec,
    ledger: OffsetLedger,
    intake: Intake,
    batcher: Batcher,
    suspects: Suspects,
    stackers: Mapping[ModelKey, Stacker],
    lanes: Lanes,
    punctuality: Punctuality,
    delivery: Delivery,
    rejections: Rejections,
    events: Events,
    signals: Signals,
    conduct: Conduct,
    clock: Callable[[], float],
    states: KeyStates | None = None,
    by_key: ByKey | None = None,
    checkpoint: Checkpoint | None = None,
    first: FirstRejections | None = None,
) -> Worker:
    """A worker of these parts.

    A model with state has `states`, and `by_key` before the batcher; and a `checkpoint`, if a clean stop leaves the
    states to the next start.
    """
    outcomes = Outcomes(
        ledger=ledger,
        delivery=delivery,
        rejections=rejections,
        stackers=stackers,
        batcher=batcher,
        punctuality=punctuality,
        events=events,
        clock=clock,
        states=states,
        by_key=by_key,
    )
    dispatch = Dispatch(
        batcher=batcher,
        stackers=stackers,
        lanes=lanes,
        intake=intake,
        punctuality=punctuality,
        outcomes=outcomes,
        events=events,
        conduct=conduct,
    )
    quarantine = Quarantine(
        suspects=suspects,
        notes=notes,
        codec=codec,
        ledger=ledger,
        outcomes=outcomes,
        dispatch=dispatch,
        punctuality=punctuality,
        states=states,
        by_key=by_key,
    )
    decoding = Decoding(
        quarantine=quarantine,
        codec=codec,
        ledger=ledger,
        intake=intake,
        stage=by_key or batcher,
        punctuality=punctuality,
        outcomes=outcomes,
        states=states,
        first=first,
    )
    admission = Admission(
        source=source,
        intake=intake,
        decoding=decoding,
        quarantine=quarantine,
        dispatch=dispatch,
        delivery=delivery,
        events=events,
        states=states,
    )
    steps = Steps(
        offsets=offsets,
        admission=admission,
        dispatch=dispatch,
        outcomes=outcomes,
        quarantine=quarantine,
        ledger=ledger,
        delivery=delivery,
        events=events,
        clock=clock,
        states=states,
    )
    return Worker(
        source=source,
        steps=steps,
        dispatch=dispatch,
        quarantine=quarantine,
        ledger=ledger,
        delivery=delivery,
        events=events,
        signals=signals,
        conduct=conduct,
        clock=clock,
        states=states,
        checkpoint=checkpoint,
    )
