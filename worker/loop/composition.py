"""Builds the loop from its parts."""

from __future__ import annotations

from worker.loop.admission import Admission
from worker.loop.checkpoint import Checkpoint
from worker.loop.conduct import Parts
from worker.loop.decoding import Decoding
from worker.loop.dispatch import Dispatch
from worker.loop.outcomes import Outcomes
from worker.loop.quarantine import Quarantine
from worker.loop.steps import Steps
from worker.loop.worker import Worker


def compose(parts: Parts) -> Worker:
    """A worker of these parts. A clean stop keeps its states for the next start, if there is a place for them."""
    outcomes = Outcomes(parts)
    dispatch = Dispatch(parts, outcomes)
    quarantine = Quarantine(parts, outcomes, dispatch)
    decoding = Decoding(parts, outcomes, quarantine)
    admission = Admission(parts, decoding, quarantine, dispatch)
    steps = Steps(parts, admission, dispatch, outcomes, quarantine)
    checkpoint = None if parts.states is None or not parts.states.can_keep else Checkpoint(parts, parts.states)
    return Worker(parts, steps, dispatch, quarantine, checkpoint)
