"""When each request of a load is due, and the loop that sends those that are.

    Steady    an open loop: request n is due n / rate after the beginning, whatever comes back
    Window    a closed loop: so many are under way that the contender always has something to do
    Backlog   all at once, as fast as they go

A latency counts from the instant a request was due. Counted from the instant it was sent, it would hide everything that
delays the sender, most of all a stall that both sides feel (coordinated omission). How late the sender itself was is
kept beside it, because then the figure is the sender's. Time is passed in, as a clock and a sleep.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

# The first part of a closed loop is not measured: its window fills, and batches find their size.
WARM_UP_S = 0.5
# A window is this deep: enough that no contender waits for the publisher, and soon worked off by a slow one.
_AHEAD_S = 0.5
# So many are handed over before the clock and the count of answers are read again.
_CHUNK = 200
# The shortest sleep, seconds: a timer that is set more often costs time that the sender needs for sending.
_TICK_S = 0.0002


class Sent(NamedTuple):
    """What a sender did: when it began, on the clock that all processes share, and when each request went after that.

    `instants`: seconds, one for each request, in the order of their numbers.
    """

    began: float
    instants: NDArray[np.float64]

    @property
    def requests(self) -> int:
        return len(self.instants)


class Now(NamedTuple):
    """How far a load is: seconds since its beginning, and requests so far."""

    elapsed: float
    sent: int
    answered: int

    @property
    def unanswered(self) -> int:
        return self.sent - self.answered


class Pace(Protocol):
    """How many requests may go now, whether that was all, and the seconds until the next is due."""

    def ready(self, now: Now) -> int: ...
    def is_over(self, now: Now) -> bool: ...
    def until_next(self, now: Now) -> float: ...


@dataclass(frozen=True, slots=True)
class Steady:
    """`count` requests at `rate` per second. It ends with `most` unanswered: the broker keeps no more."""

    rate: float
    count: int
    most: float = math.inf

    def due(self, number: int) -> float:
        """Seconds from the beginning until the request of that number (from 0) is due."""
        return number / self.rate

    def ready(self, now: Now) -> int:
        return max(0, min(self.count, math.floor(now.elapsed * self.rate) + 1) - now.sent)

    def is_over(self, now: Now) -> bool:
        return now.sent >= self.count or now.unanswered >= self.most

    def until_next(self, now: Now) -> float:
        return max(0.0, self.due(now.sent) - now.elapsed)


@dataclass(frozen=True, slots=True)
class Window:
    """As many requests under way as are answered in half a second, for `seconds` after the warm-up.

    Never fewer than `least`, which fills batches, nor more than `most`, which the broker keeps.
    """

    least: int
    most: int
    seconds: float

    def size(self, rate: float) -> float:
        """Requests under way while `rate` are answered per second."""
        return min(self.most, max(self.least, _AHEAD_S * rate))

    def ready(self, now: Now) -> int:
        return max(0, int(self.size(now.answered / now.elapsed if now.elapsed else 0.0)) - now.unanswered)

    def is_over(self, now: Now) -> bool:
        return now.elapsed >= WARM_UP_S + self.seconds

    def until_next(self, now: Now) -> float:  # noqa: ARG002 - it hangs on answers
        return _TICK_S


@dataclass(frozen=True, slots=True)
class Backlog:
    """`count` requests as fast as they go."""

    count: int

    def ready(self, now: Now) -> int:
        return self.count - now.sent

    def is_over(self, now: Now) -> bool:
        return now.sent >= self.count

    def until_next(self, now: Now) -> float:  # noqa: ARG002 - none has to wait
        return 0.0


def send(
    pace: Pace,
    publish: Callable[[int], None],
    serve: Callable[[int], None],
    answered: Callable[[], int],
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> Sent:
    """Until the pace is over; some requests may not be acknowledged then. `publish` takes a request's number, `serve`
    gets the count of requests sent, and lets the client work; `answered` counts the answers so far.
    """
    began = clock()
    instants = array("d")
    while not pace.is_over(now := Now(clock() - began, len(instants), answered())):
        count = min(_CHUNK, pace.ready(now))
        for number in range(now.sent, now.sent + count):
            publish(number)
            instants.append(clock() - began)
        serve(len(instants))
        if not count:
            sleep(max(_TICK_S, pace.until_next(now)))
    return Sent(began, np.array(instants))
