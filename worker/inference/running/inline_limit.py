"""How long an inference may take to be run on the loop's own thread, on this machine.

To hand a batch to a lane and fetch it again is work of the interpreter, as is nearly all that the loop does. So what is
brief is told in the interpreter's steps and timed at the start: where the interpreter is half as fast, a lane pays from
twice as long an inference on.

Measured on two busy cores. On a machine that serves three times as many rows as the next, one inference of 0.23 ms is
answered a quarter faster on the loop's thread than in a lane, and one of 0.76 ms a tenth slower; with cores to spare
the lane would win by a tenth from 0.23 ms on. Where a step takes 57 ns, one of 0.29 ms is answered 1.7 times as fast on
the loop's thread, one of 0.55 ms 1.07 times, and one of 0.7 ms 1.0 to 1.2 times.
"""

from __future__ import annotations

import time
from collections.abc import Callable

# So many steps are brief; so many are timed, so often: 1 ms of the start where the interpreter is slow.
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
