"""The thread that talks to the store, so that the loop never waits for the network.

    loop ─▶ writes and reads ─▶ thread: one round trip for all that wait ─▶ values ─▶ loop

A failed round trip is repeated, with its parts in order, until the store carries it out. That is safe, because writing
a value twice has the effect of writing it once. Owns the thread and its two queues.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice
from typing import TypeVar

from worker.core.ordering.ledger import Stretch
from worker.state.outside_states import Asked
from worker.state.outside_values import Change
from worker.stores.server import StoreAway, StoreServer, Write

_T = TypeVar("_T")
# Keys of one round trip; more keys wait for the next one. A reply of megabytes would take longer than the timeout.
MOST_KEYS = 4096
# Seconds between two attempts.
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 1.0


class StoreLink:
    """Reads and writes values in the store. `ttl`: seconds after which the server forgets a state; None: never."""

    def __init__(
        self,
        server: StoreServer,
        *,
        ttl: int | None,
        forgotten_for: int,
        tell_round_trip: Callable[[float], object] = lambda _: None,
    ) -> None:
        """`forgotten_for`: seconds for which the server keeps the note that a key was forgotten."""
        self._server = server
        self._seconds = {False: ttl or 0, True: forgotten_for}
        self._tell_round_trip = tell_round_trip
        self._changed = threading.Condition()
        self._asked: deque[Asked] = deque()
        self._to_write: deque[tuple[Sequence[Change], Stretch]] = deque()
        self._is_closed = False
        # Written by the thread and taken by the loop.
        self._came: deque[tuple[Asked, Sequence[bytes | None]]] = deque()
        self._written: deque[Stretch] = deque()
        self._took: deque[float] = deque()
        self._failure: BaseException | None = None
        self.trouble: str | None = None
        self.away_since: float | None = None
        self._thread = threading.Thread(target=self._serve, name="store", daemon=True)
        self._thread.start()

    # The loop's side

    def ask(self, asked: Sequence[Asked]) -> None:
        """Have the values of these keys read."""
        with self._changed:
            self._asked += asked
            self._changed.notify()

    def write(self, changes: Sequence[Change], stretch: Stretch) -> None:
        """Have the changes that answers leave written."""
        with self._changed:
            self._to_write.append((changes, stretch))
            self._changed.notify()

    def read(self) -> Sequence[tuple[Asked, Sequence[bytes | None]]]:
        """Returns the values that came since the last call. Raises `Stop`."""
        self._check()
        while self._took:
            self._tell_round_trip(self._took.popleft())
        return [self._came.popleft() for _ in range(len(self._came))]

    def written(self) -> Sequence[Stretch]:
        """Returns the places whose changes have reached the store since the last call. Raises `Stop`."""
        self._check()
        return [self._written.popleft() for _ in range(len(self._written))]

    def close(self, timeout: float) -> None:
        """End the thread and the connection. Changes on their way are given up: none of them is committed."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(timeout)
        self._server.close()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    # The thread's side

    def _serve(self) -> None:
        pause = SHORTEST_PAUSE
        while self._wait_for_work():
            try:
                self._carry_out()
                pause = SHORTEST_PAUSE
            except StoreAway as away:
                self.away_since = self.away_since or time.monotonic()
                self.trouble = str(away)
                with self._changed:
                    self._changed.wait_for(lambda: self._is_closed, pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            except BaseException as error:  # noqa: BLE001  # the loop raises it, so that no failure here goes unseen
                self._failure = error
                return

    def _wait_for_work(self) -> bool:
        """Wait until there is work. Returns False when the link is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._asked or self._to_write)
            return not self._is_closed

    def _carry_out(self) -> None:
        """Make one round trip. Its reads and writes stay in the queues until it is done."""
        with self._changed:
            writes = _first(self._to_write, lambda item: len(item[0]))
            asked = _first(self._asked, lambda item: len(item.keys))
        # Only the last write of each key is sent: writes come in the order of their offsets.
        last = {change.key: change for changes, _ in writes for change in changes}
        began = time.monotonic()
        values = self._server.exchange(
            [Write(change.key, change.value, self._seconds[change.is_forgotten]) for change in last.values()],
            list(chain.from_iterable(item.keys for item in asked)),
        )
        self._took.append(time.monotonic() - began)
        came = iter(values)
        for item in asked:
            self._came.append((item, list(islice(came, len(item.keys)))))
            self._asked.popleft()
        for _, stretch in writes:
            self._written.append(stretch)
            self._to_write.popleft()
        self.trouble = self.away_since = None


def _first(queue: Iterable[_T], size: Callable[[_T], int]) -> list[_T]:
    """Returns as many items as one round trip takes; at least one, if there is any."""
    first: list[_T] = []
    total = 0
    for item in queue:
        total += size(item)
        if first and total > MOST_KEYS:
            break
        first.append(item)
    return first
