"""How the loop uses its lanes and how long its waits are: chosen once, when the worker is assembled."""

from __future__ import annotations

from dataclasses import dataclass

POLL_SLICE = 0.1  # the longest wait in one poll, so that a signal is seen soon, seconds
LANE_SLICE = 0.001  # the longest wait for a lane before the topics are looked at again, seconds
SHORTEST_WAIT = 0.001  # the client counts milliseconds and takes less for no wait at all: a spin, seconds


@dataclass(frozen=True, slots=True)
class Conduct:
    """How the loop uses its lanes, and how long it takes to let go. Timeouts in seconds."""

    lanes: int = 1
    inflight_batches: int = 2
    drain_timeout: float = 20.0
    revoke_timeout: float = 10.0
    lane_slice: float = LANE_SLICE
