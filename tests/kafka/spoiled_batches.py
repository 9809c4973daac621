"""Spoils batches on a broker's disk: the frame stays valid, and a record inside it can no longer be parsed.

    with broker.start():                        # a `JvmBroker`; a batch of ten: `cluster.produce(topic, ten, AS_ONE)`
        spoil(broker.data, topic, 0, offset=3)  # while it runs, too: it serves what lies in the file
        spoil(…, is_crc_wrong=True)             # for a reader that must find it by its checksum

The length of the record at `offset` becomes a number beyond the batch. Clients stop there when they parse the batch:
librdkafka 2.16 gives the records before it and then nothing, without an error (librdkafka#5581). The batch's checksum
is corrected, so that brokers accept the batch after any restart. Where the topic has several replicas, each has a copy.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.kafka.cluster import Sent

# For `Cluster.produce`: a flush sends all waiting records as one uncompressed batch.
AS_ONE = {"compression.type": "none", "linger.ms": "1000", "batch.num.messages": "10000"}

# Kafka's record batch, version 2: (format, place) of the fields read here. The checksum covers all bytes behind it.
_HEAD = 12  # base offset and length, which the length does not count
_BASE_OFFSET, _LENGTH = (">q", 0), (">i", 8)
_CRC_AT, _CRC_FROM = 17, 21
_ATTRIBUTES, _LAST_DELTA = (">h", 21), (">i", 23)
_RECORDS_AT = 61
_COMPRESSED = 0b111
# A varint of -64: no valid length begins with it.
_NO_LENGTH = 0x7F


class SpoiledBatch(NamedTuple):
    """A spoiled batch's offsets: readers get the records below `offset`, and none of the others."""

    first: int
    offset: int
    last: int

    @property
    def lost(self) -> Sequence[int]:
        """The offsets that no reader gets any more."""
        return range(self.offset, self.last + 1)


def spoil(data: Path, topic: str, partition: int, offset: int, *, is_crc_wrong: bool = False) -> SpoiledBatch:
    """Break the record at this offset, in an unpacked batch. `data` is the broker's folder of topics."""
    for log in sorted((data / f"{topic}-{partition}").glob("*.log")):
        content = bytearray(log.read_bytes())
        for at, end in _batches(content):
            first = _read(content, at, _BASE_OFFSET)
            last = first + _read(content, at, _LAST_DELTA)
            if first <= offset <= last:
                assert not _read(content, at, _ATTRIBUTES) & _COMPRESSED, "it is packed: give AS_ONE to the producer"
                content[_record_at(content, at, offset - first)] = _NO_LENGTH
                crc = crc32c(content[at + _CRC_FROM : end]) ^ is_crc_wrong
                content[at + _CRC_AT : at + _CRC_FROM] = crc.to_bytes(4, "big")
                with log.open("r+b") as file:  # in place: the broker may have it open, and append to it
                    file.seek(at)
                    file.write(content[at:end])
                return SpoiledBatch(first, offset, last)
    raise AssertionError(f"{topic}/{partition} has no offset {offset} in {data}")


def ten(prefix: str = "", key: bytes | None = b"k") -> list[Sent]:
    """Ten small records, told apart by their values."""
    return [Sent(key, f"{prefix}{number}".encode()) for number in range(10)]


def crc32c(content: bytes | bytearray) -> int:
    """The checksum of batches (Castagnoli)."""
    crc = 0xFFFF_FFFF
    for byte in content:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFF_FFFF


def _entry(number: int) -> int:
    for _ in range(8):
        number = (number >> 1) ^ (0x82F6_3B78 if number & 1 else 0)
    return number


_TABLE = [_entry(number) for number in range(256)]


def _batches(content: bytearray) -> Iterator[tuple[int, int]]:
    """The beginning and end of each batch; an open log may be followed by zeros."""
    at = 0
    while at + _RECORDS_AT <= len(content) and (length := _read(content, at, _LENGTH)) > 0:
        yield at, at + _HEAD + length
        at += _HEAD + length


def _record_at(content: bytearray, batch: int, number: int) -> int:
    """The place of the length of a batch's n-th record. There are no gaps: the log was never compacted."""
    at = batch + _RECORDS_AT
    for _ in range(number):
        length, size = _varint(content, at)
        at += size + length
    return at


def _varint(content: bytearray, at: int) -> tuple[int, int]:
    """A zigzag number, and its size in bytes."""
    number, size = 0, 0
    while True:
        byte = content[at + size]
        number |= (byte & 0x7F) << (7 * size)
        size += 1
        if not byte & 0x80:
            return (number >> 1) ^ -(number & 1), size


def _read(content: bytearray, batch: int, what: tuple[str, int]) -> int:
    form, place = what
    return int(struct.unpack_from(form, content, batch + place)[0])
