"""One letter of a topic, read as if the topic ended behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from worker.codecs.dead_letters import Position
from worker.core.records import Partition, Record
from worker.tools.dead_letters.replay import LetterReader


class OneLetter:
    """A `LetterReader` of the letter at a place. Its reader belongs to another."""

    def __init__(self, reader: LetterReader, at: Position) -> None:
        self._reader = reader
        self._partition, self._offset = Partition(at.topic, at.partition), at.offset
        self._is_read = False

    @property
    def ends(self) -> Mapping[Partition, int]:
        return {self._partition: self._offset + 1}

    @property
    def has_reached_ends(self) -> bool:
        return self._is_read or self._reader.has_reached_ends

    def start_at(self, offsets: Mapping[Partition, int]) -> None:
        self._is_read = False
        self._reader.start_at(offsets)

    def read(self, timeout: float) -> Sequence[Record]:
        records = self._reader.read(timeout)
        self._is_read = self._is_read or bool(records)
        return [record for record in records if record.offset == self._offset]
