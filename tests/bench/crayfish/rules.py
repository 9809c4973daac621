"""What Crayfish fixes, and how it judges a run: read in its sources, at the commit that `published.py` names.

It makes events at a rate, sends each to one of 32 partitions, and lets the topic of the answers stamp them as it
appends them (`LogAppendTime`). Of what its reader saw, the first quarter is warm-up. A latency is the time from an
event's creation to the append of its answer, the throughput all answers that are left, by the time from the first
creation among them to the last append.

So a queue counts against the throughput: where all events come at once, it is three quarters of what came out a second
(a test has it). And an event is created once the one before has been taken: what holds the sender up is in no latency.
Here a latency counts from the instant at which the event was due.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from worker.tools.load.figures import latency_ms

Floats = NDArray[np.float64]

PARTITIONS = 32  # of either topic: `kafka.input.data.partitions.num`
STAMPED = {"message.timestamp.type": "LogAppendTime"}
LARGEST = 52_428_800  # bytes of an event at most: `kafka.max.req.size`
WARM_UP = 0.25  # of all answers


class Trips(NamedTuple):
    """Of each event, in the order in which the answers were read: when it was due and sent, and when its answer was
    appended, seconds since the epoch.
    """

    due: Floats
    sent: Floats
    appended: Floats


class Judged(NamedTuple):
    """Answers a second, and milliseconds from due to append. NaN: too few answers to tell."""

    rate: float
    mean: float
    p50: float
    p99: float


def judged(trips: Trips) -> Judged:
    """By Crayfish's rule, but for the instant from which a latency counts."""
    due, sent, appended = (column[int(len(column) * WARM_UP) :] for column in trips)
    waited = appended - due
    told = latency_ms(waited)
    rate = len(waited) / float(appended.max() - sent.min())
    return Judged(rate, float(waited.mean()) * 1000, *(told.get(name, math.nan) for name in ("p50", "p99")))


def middle(rounds: Sequence[Judged]) -> Judged:
    """The median of each figure."""
    return Judged(*(statistics.median(column) for column in zip(*rounds, strict=True)))
