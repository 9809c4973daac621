"""A TCP proxy on 127.0.0.1 between a client and a broker; it can make the network slow, lossy, or cut.

A lost packet costs TCP the wait for its repetition. During a cut nothing comes through, and neither side is told;
connections that live long enough go on afterwards.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self

from tests.kafka.broker import JvmBroker, free_port
from tests.kafka.cluster import Cluster
from tests.kafka.fixtures import or_skip

CHUNK = 65_536
PATIENCE = 30.0  # seconds for the loop's thread to do a task
REPETITION = 0.2  # seconds until TCP repeats a packet: Linux's minimum
DOOR = "PROXIED"
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Proxy:
    """Owns a thread with an event loop, a listening socket and its connections. `address` is the client's way in."""

    def __init__(self) -> None:
        self._port = free_port()
        self.address = f"127.0.0.1:{self._port}"
        self._target = ("", 0)
        self._latency = self._jitter = self._loss = 0.0
        self._chance = random.Random(7)
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._passable = asyncio.Event()
        self._passable.set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)

    def forward_to(self, address: str) -> None:
        """Lead new connections to `address`."""
        host, _, port = address.rpartition(":")
        self._target = (host, int(port))

    def slow_down(self, latency: float, jitter: float = 0.0, loss: float = 0.0) -> None:
        """Add `latency` seconds in each direction, at random up to `jitter` more or less.

        `loss` is the share of chunks that come only when TCP repeats them.
        """
        self._latency, self._jitter, self._loss = latency, jitter, loss

    def cut(self) -> None:
        """Let nothing through."""
        self._loop.call_soon_threadsafe(self._passable.clear)

    def heal(self) -> None:
        """Let everything through, at once."""
        self.slow_down(0.0)
        self._loop.call_soon_threadsafe(self._passable.set)

    async def _serve(self) -> None:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", self._port)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._passable.wait()
        try:
            broker = await asyncio.open_connection(*self._target)
        except OSError:  # the broker is away
            writer.close()
            return
        self._forward((reader, writer), broker)

    def _forward(self, client: Connection, broker: Connection) -> None:
        self._begin(self._pump(client[0], broker[1]))
        self._begin(self._pump(broker[0], client[1]))

    def _begin(self, pump: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(pump)
        self._tasks.add(task)  # the loop itself would let go of it
        task.add_done_callback(self._tasks.discard)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one direction. Chunks travel side by side, and arrive in order."""
        way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(256)
        arrive = self._loop.create_task(self._deliver(way, writer))
        with suppress(OSError):
            while chunk := await reader.read(CHUNK):
                await way.put((time.monotonic() + self._delay(), chunk))
        await way.put((0.0, b""))
        await arrive

    async def _deliver(self, way: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while (arrives := await way.get())[1]:
                await asyncio.sleep(arrives[0] - time.monotonic())
                await self._passable.wait()
                writer.write(arrives[1])
                await writer.drain()
        writer.close()

    def _delay(self) -> float:
        repeated = REPETITION if self._chance.random() < self._loss else 0.0
        return self._latency + self._chance.uniform(-self._jitter, self._jitter) + repeated

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result(PATIENCE)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(PATIENCE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def broker_behind(proxy: Proxy) -> Iterator[Cluster]:
    """A broker with two ways in: the direct one, and the proxy's address."""
    with proxy, or_skip(lambda: JvmBroker(doors={DOOR: "PLAINTEXT"}, advertised={DOOR: proxy.address})) as broker:
        proxy.forward_to(broker.addresses[DOOR])
        yield Cluster(broker.bootstrap_servers)
