"""The parts of a loop, its use of the lanes and the lengths of its waits, chosen when the worker is assembled."""

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
from worker.ports import Codec, Delivery, Events, GroupSource, Lanes, Schemas, Signals, Stage, States

POLL_SLICE = 0.1  # the longest wait in one poll, in seconds, so that a signal is seen soon
LANE_SLICE = 0.001  # the longest wait for a lane, in seconds, before the topics are polled again
# The longest wait while enough full groups wait for the lanes: nothing is taken then, and a lane that finishes ends the
# wait. Delivery reports and commits may be this late. With a look each millisecond, a busy lane woke the loop 131 times
# for 1,000 rows instead of 41, and a row took 12.6 µs of its time, not 10.0 (measured 2026-11, batches of 64 and 8 ms).
BACKLOG_SLICE = 0.01
SHORTEST_WAIT = 0.001  # seconds; the client counts milliseconds, and with less it would not wait at all, but spin


@dataclass(frozen=True, slots=True)
class Conduct:
    """How the loop uses its lanes, and how long a drain and a revoke may take. Timeouts in seconds.

    `polled_beside_runs`: the most records of one poll while a lane runs, which would wait for its next batch if reading
    them took longer than its batches.
    """

    lanes: int = 1
    inflight_batches: int = 2
    polled_beside_runs: int = 128
    drain_timeout: float = 20.0
    revoke_timeout: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """All parts of one loop, each named once. The loop's classes take the parts they need.

    `stage` takes chunks: the batcher, or with state the stage before it, where a key's records wait for one another.
    `schemas` None: no record names its schema.
    """

    source: GroupSource
    codec: Codec
    ledger: OffsetLedger
    intake: Intake
    stage: Stage
    batcher: Batcher
    stackers: Mapping[ModelKey, Stacker]
    lanes: Lanes
    punctuality: Punctuality
    delivery: Delivery
    rejections: Rejections
    events: Events
    signals: Signals
    conduct: Conduct
    clock: Callable[[], float]
    states: States
    first: FirstRejections
    schemas: Schemas | None = None
