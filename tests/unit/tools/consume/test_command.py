"""When `consume` has waited long enough, what it says of a key that did not come, and which are the last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest

from worker.core.failures import Incomplete
from worker.core.records import Partition, Record
from worker.kafka.client.command_clients import ANSWER_TIMEOUT
from worker.tools.consume import command as consume
from worker.tools.consume.command import Patience, _Search, _Tail
from worker.tools.consume.options import ConsumeOrder
from worker.tools.kafka.reader import Reader


def test_silence_counts_once_the_backlog_has_been_read() -> None:
    """Connecting and reading what was there take as long as they take."""
    patience = Patience(0.5, 100.0)

    assert not patience.is_over(102.0, is_backlog=True)
    patience.heard(102.0)
    assert not patience.is_over(104.0, is_backlog=True)
    patience.heard(104.0)
    assert not patience.is_over(104.5, is_backlog=False)
    assert patience.is_over(104.6, is_backlog=False)


def test_a_broker_that_sends_nothing_of_the_backlog_is_not_waited_for_without_end() -> None:
    """As long as any answer of a broker may take, or as long as was asked for."""
    assert not Patience(0.5, 0.0).is_over(ANSWER_TIMEOUT, is_backlog=True)
    assert Patience(0.5, 0.0).is_over(ANSWER_TIMEOUT + 0.1, is_backlog=True)
    assert not Patience(60.0, 0.0).is_over(59.0, is_backlog=True)
    assert Patience(60.0, 0.0).is_over(61.0, is_backlog=True)


def test_without_a_timeout_patience_has_no_end() -> None:
    """Whatever comes, or does not."""
    assert not Patience(None, 0.0).is_over(1e9, is_backlog=True)
    assert not Patience(None, 0.0).is_over(1e9, is_backlog=False)


@pytest.mark.parametrize(
    ("wish", "told"),
    [
        (ConsumeOrder(key="k"), "no record with the key k was found$"),
        (ConsumeOrder(key="k", last=2, errors_only=True), "no error with the key k was found$"),
    ],
)
def test_a_key_that_did_not_come_is_missing(wish: ConsumeOrder, told: str) -> None:
    """And is told by what was looked for."""
    with pytest.raises(Incomplete, match=told):
        _Search(wish).check()


class Topic:
    """Stands in for a reader: so many partitions, each with a record a second, of which every so many is an error."""

    def __init__(self, partitions: int, records: int, every: int) -> None:
        self._every = every
        self.beginnings = {Partition("answers", number): 0 for number in range(partitions)}
        self.ends = dict.fromkeys(self.beginnings, records)
        self.has_reached_ends = False
        self.starts: list[int] = []
        self._offsets: Mapping[Partition, int] = {}

    def start_at(self, offsets: Mapping[Partition, int]) -> None:
        self.starts.append(min(offsets.values()))
        self._offsets, self.has_reached_ends = offsets, False

    def read(self) -> list[Record]:
        self.has_reached_ends = True
        return [self._record(at, n) for at, start in self._offsets.items() for n in range(start, self.ends[at])]

    def _record(self, at: Partition, offset: int) -> Record:
        is_error = offset % self._every == at.number
        headers = [("status", b"error" if is_error else b"ok")]
        return Record(at, offset, None, b"", headers, offset * 1000 + at.number)


def newest(topic: Topic, wish: ConsumeOrder) -> list[tuple[int, int]]:
    """Partitions and offsets of what the tail of a topic shows."""
    tail = _Tail(cast("Reader", topic), wish.last or 0, _Search(wish), looks_through_all=wish.from_beginning)
    while not (found := tail.newest(topic.read())) and not topic.has_reached_ends:
        pass
    return [(record.partition.number, record.offset) for record in found]


def test_the_last_errors_are_found_behind_good_answers() -> None:
    """So many errors are asked for, and not what errors there are among so many answers."""
    topic = Topic(partitions=2, records=1000, every=100)

    assert newest(topic, ConsumeOrder(last=3, errors_only=True)) == [(1, 801), (0, 900), (1, 901)]
    assert topic.starts[-1] > 0, "read to the beginning though nothing newer could be there"


def test_the_newest_are_read_once() -> None:
    """Where all are wanted, each partition's last so many hold them."""
    topic = Topic(partitions=2, records=1000, every=100)

    assert newest(topic, ConsumeOrder(last=3)) == [(1, 998), (0, 999), (1, 999)]
    assert topic.starts == [997]


def test_what_was_not_looked_through_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A topic may be long, and its errors few."""
    monkeypatch.setattr(consume, "_LOOK_THROUGH", 400)

    assert newest(Topic(partitions=2, records=1000, every=100), ConsumeOrder(last=5, errors_only=True)) == [
        (0, 800), (1, 801), (0, 900), (1, 901)
    ]  # fmt: skip

    assert capsys.readouterr().err == (
        "inference-worker: 4 found in the newest 200 offsets of each partition; earlier ones were not looked "
        "through; --from-beginning looks through all\n"
    )


def test_all_is_looked_through_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the line says that tells what was not."""
    monkeypatch.setattr(consume, "_LOOK_THROUGH", 400)
    wish = ConsumeOrder(last=5, errors_only=True, from_beginning=True)

    assert newest(Topic(partitions=2, records=1000, every=100), wish) == [
        (1, 701), (0, 800), (1, 801), (0, 900), (1, 901)
    ]  # fmt: skip
    assert capsys.readouterr().err == ""


def test_a_topic_without_so_many_is_read_to_its_beginning_in_silence(capsys: pytest.CaptureFixture[str]) -> None:
    """There is nothing else to look through."""
    topic = Topic(partitions=1, records=1000, every=500)

    assert newest(topic, ConsumeOrder(last=5, errors_only=True)) == [(0, 0), (0, 500)]
    assert topic.starts[-1] == 0
    assert capsys.readouterr().err == ""
