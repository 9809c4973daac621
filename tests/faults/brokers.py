"""The brokers that the mix stops and starts: a lone one, or three in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path

from tests.kafka.broker import JvmBroker


class Brokers:
    """A cluster; one broker is away between `stop`, `kill` or `suspend` and `start`, each in turn.

    `wait` returns once the previous broker has caught up.
    """

    def __init__(self, nodes: Sequence[JvmBroker], wait: Callable[[], None] = lambda: None) -> None:
        self.count = len(nodes)
        self.bootstrap_servers = ",".join(node.bootstrap_servers for node in nodes)
        self.log: Path = nodes[0].log
        self.disks: Sequence[Path] = [node.data for node in nodes]
        self._wait = wait
        self._turns = cycle(nodes)
        self._away = nodes[0]

    def stop(self) -> None:
        self._next().stop()

    def kill(self) -> None:
        self._next().kill()

    def suspend(self) -> None:
        self._next().suspend()

    def start(self) -> None:
        self._away.heal()

    def _next(self) -> JvmBroker:
        self._wait()
        self._away = next(self._turns)
        return self._away
