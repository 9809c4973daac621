"""How long an inference may take to be run on the loop's own thread, on this machine.

To hand a batch to a lane and fetch it again is work of the interpreter, as is nearly all that the loop does. So the
limit is a number of the interpreter's steps, which are timed at the start: on an interpreter that is half as fast the
limit is twice as long.

Measured on two busy cores (2026). On a fast machine an inference of 0.23 ms is answered a quarter faster on the loop's
thread than in a lane, and one of 0.76 ms a tenth slower; with idle cores the lane wins by a tenth from 0.23 ms on. On
one a third as fast, where a step takes 57 ns, an inference of 0.29 ms is answered 1.7 times as fast on the loop's
thread, one of 0.55 ms 1.07 times, and one of 0.7 ms 1.0 to 1.2 times.
"""

from __future__ import annotations

import time
from collections.abc import Callable

# An inference as long as STEPS is brief. TIMED steps are timed TIMES times: 1 ms of the start on a slow interpreter.
STEPS = 15_000
TIMED, TIMES = 1_000, 9


def inline_limit(processor_clock: Callable[[], float] = time.thread_time) -> float:
    """Seconds of the processor that an inference may take to be brief here."""
    median = sorted(_time_of(TIMED, processor_clock) for _ in range(TIMES))[TIMES // 2]  # `statistics`: 20 ms to import
    return median * STEPS / TIMED


def _time_of(steps: int, processor_clock: Callable[[], float]) -> float:
    began = processor_clock()
    done = 0
    for step in range(steps):
        done += step
    return processor_clock() - began
