"""A server of one request at a time on a clock of its own, and a sender beside it: a load that takes no time."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

import numpy as np

from worker.tools.load.figures import Heard
from worker.tools.load.pace import Pace, Sent, send


@dataclass
class Server:
    """Answers in order, each request in `service` seconds, and nothing from `stall[0]` to `stall[1]`.

    `blocks`: the sender cannot hand over a request during the stall either. `drag`: seconds that each hand-over costs.
    """

    service: float = 0.0
    stall: tuple[float, float] = (np.inf, np.inf)
    blocks: bool = False
    drag: float = 0.0
    now: float = 100.0
    free_at: float = 0.0
    answered_at: list[float] = field(default_factory=list)

    def publish(self, number: int) -> None:
        assert number == len(self.answered_at)
        self.now += self.drag
        began = max(self.now, self.free_at)
        if self.stall[0] <= began - 100.0 < self.stall[1]:
            began = 100.0 + self.stall[1]
            self.now = began if self.blocks else self.now
        self.free_at = began + self.service
        self.answered_at.append(self.free_at)

    def answered(self) -> int:
        return bisect_right(self.answered_at, self.now)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def bear(self, pace: Pace) -> tuple[Sent, Heard]:
        """A whole load."""
        sent = send(pace, self.publish, lambda _: None, self.answered, lambda: self.now, self.sleep)
        return sent, Heard(np.arange(len(self.answered_at)), np.array(self.answered_at))
