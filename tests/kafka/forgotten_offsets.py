"""Deletes offsets of a group partition by partition: Kafka's scripts can (`--delete-offsets`), our client cannot."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Collection

_OFFSET_DELETE = 47
_TIMEOUT = 10.0  # of one answer, seconds
_PATIENCE = 60.0
_AGAIN_AFTER = 0.2


def forget_offsets(bootstrap_servers: str, group: str, topic: str, partitions: Collection[int]) -> None:
    """Ask brokers until the group's coordinator has deleted them; it refuses while members read the topic."""
    give_up_at = time.monotonic() + _PATIENCE
    while True:
        codes = [_ask(server, group, topic, partitions) for server in bootstrap_servers.split(",")]
        if [0] * (len(partitions) + 1) in codes:
            return
        assert time.monotonic() < give_up_at, f"no broker deletes offsets of {group}: {codes}"
        time.sleep(_AGAIN_AFTER)


def _ask(server: str, group: str, topic: str, partitions: Collection[int]) -> list[int]:
    """The error codes of the request and of each partition; none where the broker is away."""
    numbers = struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    body = _string(group) + struct.pack(">i", 1) + _string(topic) + numbers
    request = struct.pack(">hhi", _OFFSET_DELETE, 0, 1) + _string("tests") + body
    host, _, port = server.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), _TIMEOUT) as connection, connection.makefile("rb") as answers:
            connection.sendall(struct.pack(">i", len(request)) + request)
            (length,) = struct.unpack(">i", answers.read(4))
            answer = answers.read(length)
    except (OSError, struct.error):
        return []
    (code,) = struct.unpack_from(">h", answer, 4)
    if code:
        return [code]
    at = 4 + 2 + 4 + 4 + len(_string(topic)) + 4
    return [0, *(struct.unpack_from(">ih", answer, at + 6 * n)[1] for n in range(len(partitions)))]


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
