"""What a loop is made of, how it uses its lanes, and how long its waits are: chosen when the worker is assembled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from worker.core.batching.back_pressure import Intake
from worker.core.batching.batcher import Batcher
from worker.core.deadlines import Punctuality
from worker.core.ordering.ledger import OffsetLedger
from worker.core.records import ModelKey
from worker.core.rejections import FirstRejections, Rejections
from worker.core.tensors.stacking import Stacker
from worker.loop.suspects import Suspects
from worker.ports import Codec, Delivery, Events, GroupSource, Lanes, Signals
from worker.state.by_key import ByKey
from worker.state.states import KeyStates

POLL_SLICE = 0.1  # the longest wait in one poll, so that a signal is seen soon, seconds
LANE_SLICE = 0.001  # the longest wait for a lane before the topics are looked at again, seconds
# The longest wait while enough is ahead of the lanes: nothing is taken then, and a lane that finishes ends the wait.
# Delivery reports and commits may be so late. Looked at each millisecond, a busy lane woke the loop 131 times for
# 1,000 rows instead of 41, for 12.6 µs of its time a row instead of 10.0 (measured 2026-11, batches of 64 and 8 ms).
BACKLOG_SLICE = 0.01
SHORTEST_WAIT = 0.001  # the client counts milliseconds and takes less for no wait at all: a spin, seconds


@dataclass(frozen=True, slots=True)
class Conduct:
    """How the loop uses its lanes, and how long it takes to let go. Timeouts in seconds."""

    lanes: int = 1
    inflight_batches: int = 2
    drain_timeout: float = 20.0
    revoke_timeout: float = 10.0
    lane_slice: float = LANE_SLICE


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The material of one loop, each part named once. Its classes take what they need of it.

    A model with state has `states`, and `by_key` before the batcher.
    """

    source: GroupSource
    codec: Codec
    ledger: OffsetLedger
    intake: Intake
    batcher: Batcher
    suspects: Suspects
    stackers: Mapping[ModelKey, Stacker]
    lanes: Lanes
    punctuality: Punctuality
    delivery: Delivery
    rejections: Rejections
    events: Events
    signals: Signals
    conduct: Conduct
    clock: Callable[[], float]
    states: KeyStates | None = None
    by_key: ByKey | None = None
    first: FirstRejections | None = None
