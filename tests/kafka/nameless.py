"""A proxy before a broker that answers one question for brokers with none, as a broker that is just starting does."""

from __future__ import annotations

import asyncio
import struct
import time
from contextlib import suppress

from tests.kafka.network import PATIENCE, Connection, Proxy

METADATA = 3
CORRELATED = 9  # bytes of an answer before its brokers: its number, tags, and for how long to wait


class Nameless(Proxy):
    """Passes all brokers on, except in the next answer to the client that `name_none_to` names."""

    def __init__(self) -> None:
        super().__init__()
        self._next_to: str | None = None

    def name_none_to(self, client_id: str) -> None:
        """Name no broker to this client once, and wait until it has asked. An id that ends with a slash is a prefix."""
        self._next_to = client_id
        deadline = time.monotonic() + PATIENCE
        while self._is_waiting:
            assert time.monotonic() < deadline, f"{client_id} asks for no brokers"
            time.sleep(0.02)

    @property
    def _is_waiting(self) -> bool:
        return self._next_to is not None

    def _is_told_so(self, client_id: str) -> bool:
        wanted = self._next_to
        return wanted is not None and (client_id.startswith(wanted) if wanted.endswith("/") else client_id == wanted)

    def _forward(self, client: Connection, broker: Connection) -> None:
        emptied: set[bytes] = set()  # the numbers of questions
        self._begin(self._read_requests(client[0], broker[1], emptied))
        self._begin(self._read_answers(broker[0], client[1], emptied))

    async def _read_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, emptied: set[bytes]
    ) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                size, request = await _frame(reader)
                (key,), (length,) = struct.unpack_from(">h", request), struct.unpack_from(">h", request, 8)
                client_id = request[10 : 10 + length].decode()
                if key == METADATA and self._is_told_so(client_id):
                    self._next_to = None
                    emptied.add(request[4:8])
                writer.write(size + request)
        writer.close()

    async def _read_answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, emptied: set[bytes]
    ) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                _, answer = await _frame(reader)
                if answer[:4] in emptied:
                    emptied.remove(answer[:4])
                    answer = _without_brokers(answer)
                writer.write(struct.pack(">i", len(answer)) + answer)
        writer.close()


async def _frame(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The size of the next request or answer, and its bytes."""
    size = await reader.readexactly(4)
    return size, await reader.readexactly(*struct.unpack(">i", size))


def _without_brokers(answer: bytes) -> bytes:
    """A Metadata answer (version 9 and later) without brokers. Counts and lengths are sent plus one, in one byte."""
    at = CORRELATED + 1
    for _ in range(answer[CORRELATED] - 1):
        at += 4  # its number
        at += answer[at]  # host
        at += 4  # port
        at += max(1, answer[at])  # rack, and none is 0
        at += 1  # tags
    return answer[:CORRELATED] + b"\1" + answer[at:]
