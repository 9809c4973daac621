"""`consume` finds the newest records that are wanted, and says when it did not look through all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest

from worker.core.records import Partition, Record
from worker.kafka.reader import Reader
from worker.signals import StopSignals
from worker.tools.consume import command as consume
from worker.tools.consume.command import _come, _Search
from worker.tools.options import ConsumeOrder


class Topic:
    """Stands for a reader: two partitions with a record a second, of which each `every`th is an error."""

    def __init__(self, records: int, every: int) -> None:
        self._every = every
        self.beginnings = {Partition("answers", number): 0 for number in range(2)}
        self.ends = dict.fromkeys(self.beginnings, records)
        self.has_reached_ends = False
        self._offsets: Mapping[Partition, int] = {}
        self._reads = 0

    def start_at(self, offsets: Mapping[Partition, int]) -> None:
        self._offsets = offsets

    def read(self, _: float) -> list[Record]:
        """The first read brings nothing."""
        self._reads += 1
        if self._reads == 1:
            return []
        self.has_reached_ends = True
        return [self._record(at, n) for at, start in self._offsets.items() for n in range(start, self.ends[at])]

    def _record(self, at: Partition, offset: int) -> Record:
        is_error = offset % self._every == at.number
        headers = [("status", b"error" if is_error else b"ok")]
        return Record(at, offset, None, b"", headers, offset * 1000 + at.number)


def newest(topic: Topic, wish: ConsumeOrder) -> list[tuple[int, int]]:
    """Partitions and offsets of the records that the tail of a topic shows."""
    come = _come(wish, cast("Reader", topic), _Search(wish), StopSignals())
    return [(record.partition.number, record.offset) for records in come for record in records]


def test_the_newest_of_all_partitions_are_shown() -> None:
    """Their times decide, oldest first; errors are found behind good answers."""
    assert newest(Topic(1000, every=100), ConsumeOrder(last=3)) == [(1, 998), (0, 999), (1, 999)]
    errors = newest(Topic(1000, every=100), ConsumeOrder(last=3, errors_only=True))
    assert errors == [(1, 801), (0, 900), (1, 901)]


def test_what_was_not_looked_through_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A topic may be long, with few errors. A topic that was read to its beginning needs no message."""
    monkeypatch.setattr(consume, "LOOK_THROUGH", 400)
    wish = ConsumeOrder(last=5, errors_only=True)

    found = newest(Topic(1000, every=100), wish)
    told = capsys.readouterr().err
    assert newest(Topic(200, every=100), wish) == [(0, 0), (1, 1), (0, 100), (1, 101)]

    assert found == [(0, 800), (1, 801), (0, 900), (1, 901)]
    assert "4 found" in told
    assert "--from-beginning looks through all" in told
    assert capsys.readouterr().err == ""
