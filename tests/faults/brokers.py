"""What the mix stops and starts: a lone broker, or one of three in turn."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Protocol

from tests.kafka.broker import JvmBroker
from tests.kafka.trio import Trio


class Brokers(Protocol):
    """A cluster, one broker of which is away between `stop`, `kill` or `suspend` and `start`."""

    count: int

    @property
    def bootstrap_servers(self) -> str: ...
    @property
    def log(self) -> Path: ...
    @property
    def disks(self) -> Sequence[Path]: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...
    def suspend(self) -> None: ...
    def start(self) -> None: ...


class Lone:
    """The only broker there is."""

    count = 1

    def __init__(self, broker: JvmBroker) -> None:
        self._broker = broker
        self.stop = broker.stop
        self.kill = broker.kill
        self.suspend = broker.suspend
        self.start = broker.heal

    @property
    def bootstrap_servers(self) -> str:
        return self._broker.bootstrap_servers

    @property
    def log(self) -> Path:
        return self._broker.log

    @property
    def disks(self) -> Sequence[Path]:
        return [self._broker.data]


class Three:
    """Each of the three is away in its turn, once the one before has again all there is."""

    count = 3

    def __init__(self, trio: Trio) -> None:
        self._trio = trio
        self._turns = cycle(trio.nodes)
        self._away = trio.nodes[0]

    @property
    def bootstrap_servers(self) -> str:
        return self._trio.cluster.bootstrap_servers

    @property
    def log(self) -> Path:
        return self._trio.nodes[0].log

    @property
    def disks(self) -> Sequence[Path]:
        return [node.data for node in self._trio.nodes]

    def stop(self) -> None:
        self._next().stop()

    def kill(self) -> None:
        self._next().kill()

    def suspend(self) -> None:
        self._next().suspend()

    def start(self) -> None:
        self._away.heal()

    def _next(self) -> JvmBroker:
        self._trio.wait_until_in_sync()
        self._away = next(self._turns)
        return self._away
