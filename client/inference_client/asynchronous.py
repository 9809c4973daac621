"""The client for asyncio. It never blocks the loop: it connects and closes on other threads, and tasks wait."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self

from numpy.typing import ArrayLike

from inference_client.answer import Answer
from inference_client.client import Closed, InferenceClient, Key
from inference_client.errors import ClientClosed, DeadlineExceeded, Full
from inference_client.exchange import ROOM_SLICE
from inference_client.kafka import ReplyPartition
from inference_client.records import Records
from inference_client.signature import Given, Inputs, Result


class _Connected(NamedTuple):
    """The client beneath, the places for its requests, and the event loop to which the places belong."""

    client: InferenceClient
    places: asyncio.Semaphore
    loop: asyncio.AbstractEventLoop


class AsyncInferenceClient:
    """The client for one event loop: `async with` connects it in its loop, and no other loop may use it."""

    def __init__(  # noqa: PLR0913  # what a program may set, each by its name
        self,
        bootstrap: str,
        *,
        requests: str,
        answers: str,
        signature: Given = None,
        records: Records | None = None,
        timeout: float = 30.0,
        in_flight: int = 1000,
        reply_partition: ReplyPartition = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """Set up an `InferenceClient`. If `in_flight` requests are under way `infer` waits, and the loop goes on."""
        self._make = lambda: InferenceClient(
            bootstrap,
            requests=requests,
            answers=answers,
            signature=signature,
            records=records,
            timeout=timeout,
            in_flight=in_flight,
            when_full="raise",
            reply_partition=reply_partition,
            config=config,
        )
        self._in_flight = in_flight
        self._connected: _Connected | None = None

    async def infer(self, inputs: Inputs | ArrayLike, *, key: Key = None, timeout: float | None = None) -> Result:
        """Send a request and wait for its result. A cancelled call frees its place. Raises as `InferenceClient.infer`.

        Also raises `RuntimeError` if the client is not connected, or was connected by another event loop.
        """
        client, places, loop = self._connection
        if asyncio.get_running_loop() is not loop:
            raise RuntimeError(
                "this client was connected in another event loop; make one in each loop, or share an InferenceClient"
            )
        seconds = client.longest if timeout is None else client.allowed(timeout)
        by = loop.time() + seconds
        if not await _has_place(places, by):
            raise DeadlineExceeded(f"{self._in_flight} requests are under way, and none ended in {seconds:g} s")
        try:
            answer = await _submitted(client, inputs, key, by)
            await _ended(answer)
            if answer.cancelled():  # nothing else cancels it
                raise ClientClosed("the client was closed before the answer came")
            return answer.result()
        finally:
            places.release()

    @property
    def client(self) -> InferenceClient:
        """The client beneath, for its counts. Raises `RuntimeError` before it is connected."""
        return self._connection.client

    @property
    def _connection(self) -> _Connected:
        if self._connected is None:
            raise RuntimeError("not connected; use it with `async with`")
        return self._connected

    async def close(self, *, cancel: bool = False, timeout: float | None = None) -> Closed:
        """Close as `InferenceClient.close` does."""
        return await asyncio.to_thread(self.client.close, cancel=cancel, timeout=timeout)

    async def __aenter__(self) -> Self:
        client = await asyncio.to_thread(self._make)
        self._connected = _Connected(client, asyncio.Semaphore(self._in_flight), asyncio.get_running_loop())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close(cancel=kind is not None)


async def _has_place(places: asyncio.Semaphore, by: float) -> bool:
    """Wait for a place until the time `by`. Returns False if none got free."""
    if not places.locked():
        return await places.acquire()  # at once; a timer for each request would cost more
    try:
        async with asyncio.timeout_at(by):
            return await places.acquire()
    except TimeoutError:
        return False


async def _submitted(client: InferenceClient, inputs: Inputs | ArrayLike, key: Key, by: float) -> Answer:
    now = asyncio.get_running_loop().time
    while True:
        left = min(client.longest, max(0.001, round(by - now(), 3)))  # its time, less the wait for a place
        try:
            return client.submit(inputs, key=key, timeout=left)
        except Full:  # the producer's queue is full: each request here has a place already
            if now() > by:
                raise
            await asyncio.sleep(ROOM_SLICE)


async def _ended(answer: Answer) -> None:
    """Wait until the answer has ended in any way. If this task is cancelled, cancel the answer."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def tell(_: Answer) -> None:
        with suppress(RuntimeError):  # the loop was closed, and no task waits any more
            loop.call_soon_threadsafe(ended.set)

    answer.when_done(tell)
    try:
        await ended.wait()
    except asyncio.CancelledError:
        answer.cancel()
        raise
