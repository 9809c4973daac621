"""The replicas of a run: each slot holds one, which is measured as long as it lives and replaced when it dies.

No fault kills the replica of slot 0, so that one lives long enough to show growth of memory.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from tests.faults.history import History
from tests.kafka.replica import Held, Replica

READY_WITHIN = 120.0  # seconds: two cores may have much else to do
DRAIN, USUAL_DRAIN = "DELIVERY__DRAIN_TIMEOUT_S", "20"
LEFT_WITHIN = 3.5  # after the drain: 3 s to leave, and a look of the watchdog
MOST_DEATHS = 5  # before a replica is ready; after that it never will be
MEASURE_EVERY = 5.0  # seconds
SPARED = 1  # slots
SLOT = "{slot}"  # in a setting: the number of the replica's slot
REFUSED = 2  # the exit code of a worker that cannot begin


@dataclass
class Life:
    """One replica from its first measurement to its last."""

    name: str
    vitals: list[tuple[float, Held]] = field(default_factory=list)  # at a second of the run
    transactions: dict[str, int] = field(default_factory=dict)  # result → count, as last measured

    @property
    def seconds(self) -> float:
        """The seconds for which it was measured."""
        return self.vitals[-1][0] - self.vitals[0][0] if self.vitals else 0.0

    def growth(self, what: str) -> float:
        """Least-squares slope per minute of the second half: a start's growth is no leak."""
        half = self.vitals[len(self.vitals) // 2 :]
        if len(half) < 3:
            return 0.0
        return float(np.polyfit([at / 60.0 for at, _ in half], [float(getattr(held, what)) for _, held in half], 1)[0])


class Fleet:
    """Owns the processes. `settings` are every replica's, with the environment's names without the prefix."""

    def __init__(self, settings: Mapping[str, str], size: int, folder: Path, history: History) -> None:
        self.slots: dict[int, Replica] = {}
        self.lives: list[Life] = []
        self.broken: list[str] = []  # unasked or wrong exits
        self.exits: Counter[int] = Counter()  # codes of exits that were asked for
        self._settings = settings
        self._ended_within = float(settings.get(DRAIN, USUAL_DRAIN)) + LEFT_WITHIN
        self._size = size
        self._folder = folder
        self._history = history
        self._leg: Mapping[str, str] = {}
        self._has_stable_ids = False
        self._started = 0
        self._suspended: set[int] = set()
        self._measured_at = 0.0

    def begin(self, settings: Mapping[str, str], *, stable_ids: bool) -> None:
        """Fill every slot, with these settings on top of the common ones, and wait until all are ready."""
        self._leg, self._has_stable_ids = settings, stable_ids
        self.fill()

    def fill(self) -> None:
        """Start a new replica in every slot, and wait until all are ready."""
        for slot in range(self._size):
            self.start(slot)
        for slot in range(self._size):
            self.wait_until_ready(slot)

    def start(self, slot: int) -> Replica:
        """Start a new replica in this slot."""
        name = f"replica-{self._started}"
        self._started += 1
        own = {name: value.replace(SLOT, str(slot)) for name, value in {**self._settings, **self._leg}.items()}
        if self._has_stable_ids:
            own["DELIVERY__TRANSACTIONAL_ID"] = f"{own['KAFKA__GROUP_ID']}-{slot}"
        replica = self.slots[slot] = Replica(own, self._folder, name)
        self.lives.append(Life(name))
        self._history.write("replica", name=name, slot=slot, pid=replica.pid)
        return replica

    def wait_until_ready(self, slot: int) -> None:
        """Wait until the replica of this slot is ready; note one that dies first, and replace it."""
        deadline, most = time.monotonic() + READY_WITHIN, self._started + MOST_DEATHS
        while self.slots[slot].status("/readyz") != 200:
            if time.monotonic() > deadline or self._started > most:
                raise RuntimeError(f"{self.slots[slot].name} does not get ready:\n{self.slots[slot].log}")
            self.mend()
            time.sleep(0.05)

    def refused(self, slot: int) -> str:
        """The end of the log of a new replica whose start must fail. The slot is empty afterwards."""
        replica = self.start(slot)
        code = self.slots.pop(slot).exit_code(READY_WITHIN)
        if code != REFUSED:
            self.note_broken(f"{replica.name} exited with {code}, and was to be refused")
        return replica.log

    def kill(self, slot: int) -> None:
        """Kill -9. The slot is empty afterwards."""
        self.slots.pop(slot).kill()

    def kill_host(self, slot: int) -> None:
        """Kill -9 the process of this replica's model. The replica itself goes on."""
        self.slots[slot].kill_host()

    def suspend(self, slot: int) -> None:
        """SIGSTOP: alive and silent."""
        self._suspended.add(slot)
        self.slots[slot].suspend()

    def resume(self, slot: int) -> None:
        """SIGCONT."""
        self.slots[slot].resume()
        self._suspended.discard(slot)

    def terminate(self, slot: int) -> None:
        """SIGTERM, and wait for its end, which must be in time and with exit code 0. The slot is empty afterwards."""
        replica = self.slots.pop(slot)
        began = time.monotonic()
        replica.terminate()
        try:
            code = replica.exit_code(self._ended_within)
        except AssertionError:
            self.note_broken(f"{replica.name} still runs {self._ended_within:.0f} s after SIGTERM")
            replica.kill()
            return
        self.exits[code] += 1
        self._history.write("exit", name=replica.name, code=code, seconds=round(time.monotonic() - began, 3))
        if code:
            self.note_broken(f"{replica.name} exited with {code} after SIGTERM")

    @property
    def transactions(self) -> Counter[str]:
        """The number of all replicas' transactions by result, except in the last seconds of each life."""
        return sum((Counter(life.transactions) for life in self.lives), Counter())

    def end(self) -> None:
        """SIGTERM to all, one after the other."""
        for slot in list(self.slots):
            self.terminate(slot)

    def mend(self) -> None:
        """Note replicas that died unasked, and replace them."""
        for slot, replica in list(self.slots.items()):
            if not replica.is_running:
                self.note_broken(f"{replica.name} ended by itself with exit code {replica.exit_code()}: see its log")
                self.start(slot)

    def measure(self) -> None:
        """Measure all replicas, when it is time."""
        if time.monotonic() < self._measured_at + MEASURE_EVERY:
            return
        self._measured_at = time.monotonic()
        lives = {life.name: life for life in self.lives}
        for slot, replica in self.slots.items():
            life = lives[replica.name]
            with suppress(OSError, StopIteration):  # it is dying, or gone
                held = replica.held
                life.vitals.append((self._history.now, held))
                self._history.write("vitals", name=replica.name, **held._asdict())
            if slot not in self._suspended:  # it would not answer
                life.transactions |= _transactions(replica)

    def note_broken(self, how: str) -> None:
        """Note an unasked or wrong exit."""
        self.broken.append(how)
        self._history.write("broken", promise="exits", how=how)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for replica in self.slots.values():
            replica.close()


def _transactions(replica: Replica) -> dict[str, int]:
    """A replica's number of transactions by result, from its metrics; empty if it does not answer."""
    try:
        lines = replica.text("/metrics").splitlines()
    except (OSError, HTTPException):
        return {}
    found = [(line, re.match(r'inference_worker_transactions_total\{result="(\w+)"\} ', line)) for line in lines]
    return {match[1]: int(float(line[match.end() :])) for line, match in found if match}
