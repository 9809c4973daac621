"""A broker that answers questions for a group's offsets wrongly, as if it had just lost the group, or slowly.

A proxy that reads requests stands in for the broker: no real broker can be told to move a coordinator, or to be slow,
at a given moment.
"""

from __future__ import annotations

import asyncio
import struct
import time
from contextlib import suppress

from tests.kafka.network import Connection, Proxy

LIST_OFFSETS, OFFSET_FETCH, FIND_COORDINATOR = 2, 9, 10
NOT_COORDINATOR = 16


class Misleading(Proxy):
    """Answers NOT_COORDINATOR to the next `wrong_answers` questions for a group's offsets, or for `wrong_seconds`.

    Delays requests of a kind (by its number) by `seconds_for`, and with them the requests behind.
    """

    def __init__(self) -> None:
        super().__init__()
        self.wrong_answers = 0
        self.wrong_seconds = 0.0  # from the first question that comes; 0 when they are over
        self._wrong_until = 0.0
        self.seconds_for: dict[int, float] = {}

    def _forward(self, client: Connection, broker: Connection) -> None:
        self._begin(self._read_requests(client, broker[1]))
        self._begin(self._pump(broker[0], client[1]))

    async def _read_requests(self, client: Connection, back: asyncio.StreamWriter) -> None:
        reader, writer = client
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                size = await reader.readexactly(4)
                request = await reader.readexactly(*struct.unpack(">i", size))
                key, version = struct.unpack_from(">hh", request)
                if key == OFFSET_FETCH and version >= 8 and self._misleads():
                    writer.write(_refused(request))
                    continue
                await asyncio.sleep(self.seconds_for.get(key, 0.0))
                back.write(size + request)
        back.close()

    def _misleads(self) -> bool:
        if self.wrong_seconds:
            now = time.monotonic()
            self._wrong_until = self._wrong_until or now + self.wrong_seconds
            if now < self._wrong_until:
                return True
            self.wrong_seconds = self._wrong_until = 0.0
        is_wrong = self.wrong_answers > 0
        self.wrong_answers -= is_wrong
        return is_wrong


def _refused(request: bytes) -> bytes:
    """The answer to OffsetFetch, version 8 and later: the group's error, and no topic."""
    (client_id,) = struct.unpack_from(">h", request, 8)
    at = 10 + max(client_id, 0) + 2  # behind the head's tags and the number of groups: one
    group = request[at : at + request[at]]  # its length and one, then as many bytes less one
    answer = request[4:8] + b"\0" + bytes(4) + b"\2" + group + b"\1" + struct.pack(">h", NOT_COORDINATOR) + b"\0\0"
    return struct.pack(">i", len(answer)) + answer
