"""The restorer's first and last offsets, with clients that follow a script."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import ListOffsetsResultInfo

from tests.builders import STATE
from tests.chunks import P0
from tests.unit.kafka.client.test_config import settings
from tests.unit.kafka.scripted import Incoming
from worker.core.failures import KafkaFatal
from worker.core.records import Partition
from worker.kafka import changelog as restoring
from worker.kafka.changelog import ChangelogRestorer, _Restore, _Wanted
from worker.state import Extent
from worker.state.restoring import Restoration


class Asking:
    """An admin client that gets these offsets, one per question."""

    def __init__(self, offsets: Iterable[int]) -> None:
        self._offsets = iter(offsets)

    def list_topics(self, *_: object) -> None: ...
    def list_offsets(self, asked: Mapping[TopicPartition, object], **_: object) -> Mapping[TopicPartition, Any]:
        future = Future[ListOffsetsResultInfo]()
        future.set_result(cast("ListOffsetsResultInfo", SimpleNamespace(offset=next(self._offsets))))
        return dict.fromkeys(asked, future)


class Reading:
    """A consumer whose group has committed nothing."""

    def close(self) -> None: ...
    def list_topics(self, *_: object) -> None: ...
    def committed(self, asked: Sequence[TopicPartition], _: float) -> Sequence[TopicPartition]:
        return asked


def test_a_leader_that_does_not_say_where_a_changelog_ends_is_asked_again() -> None:
    """If silence counted as an end, the partition would seem to have no states."""
    restorer = ChangelogRestorer(
        settings(), "states", STATE, logging.getLogger(__name__), is_exact=True, date=lambda: 0.0
    )
    restorer.__dict__["_consumer"] = Reading()
    restorer._waiting = [_Wanted(P0, 1, None)]
    restorer.__dict__["_asking"] = Asking([0, OFFSET_INVALID, OFFSET_INVALID, 0, 0])

    for _ in range(2):
        restorer._start()
        assert restorer.found() is None

    restorer._start()
    found = restorer.found()
    assert found is not None
    assert found.is_last
    restorer.close(1.0)


class Leaderless(Reading):
    """A consumer that finds no leaders."""

    def committed(self, asked: Sequence[TopicPartition], _: float) -> Sequence[TopicPartition]:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no leaders found"))


def test_partitions_whose_offsets_are_not_told_wait(caplog: pytest.LogCaptureFixture) -> None:
    """The log says so."""
    restorer = ChangelogRestorer(
        settings(), "states", STATE, logging.getLogger(__name__), is_exact=True, date=lambda: 0.0
    )
    restorer._waiting = [_Wanted(P0, 1, None)]
    restorer.__dict__["_asking"] = Asking([])

    restorer.__dict__["_consumer"] = Leaderless()
    restorer._start()

    restorer.close(1.0)
    assert "wait: no leaders found" in caplog.text


def test_a_key_is_forgotten_whatever_the_headers_of_the_record_are_called() -> None:
    """Headers with a name that is not UTF-8 ended the worker, and each worker after it."""
    restorer = ChangelogRestorer(
        settings(), "states", STATE, logging.getLogger(__name__), is_exact=True, date=lambda: 0.0
    )
    gone = cast("Message", Incoming(P0, 7, content=None, looks=[]))

    restorer._take(Restoration(P0, 1, STATE, committed=0, is_exact=True), [gone])

    found = restorer.found()
    assert found is not None
    assert (found.keys, found.rows, found.forgotten_by) == ([b"k"], None, [-1])
    restorer.close(1.0)


class Damaged(Reading):
    """A consumer that cannot unpack the changelog batch that begins at 3."""

    def __init__(self) -> None:
        self.seeks: list[int] = []

    def consume(self, *_: object) -> list[Message]:
        damaged = KafkaError(KafkaError._BAD_COMPRESSION, "damaged")
        return [cast("Message", Incoming(Partition("states", 0), 3, damaged))]

    def seek(self, at: TopicPartition) -> None:
        self.seeks.append(at.offset)

    def position(self, asked: Sequence[TopicPartition]) -> Sequence[TopicPartition]:
        return [TopicPartition(at.topic, at.partition, 3) for at in asked]


def test_a_batch_that_no_client_can_unpack_ends_the_restore(monkeypatch: pytest.MonkeyPatch) -> None:
    """Older states must not replace those in the batch. If another client can read it, it is read again."""
    restorer = ChangelogRestorer(
        settings(), "states", STATE, logging.getLogger(__name__), is_exact=True, date=lambda: 0.0
    )
    ends = iter([(2, ""), (9, "")])
    monkeypatch.setattr(restoring, "find_end", lambda *_: next(ends))
    restorer.__dict__["_consumer"] = consumer = Damaged()
    restorer._read()  # of a partition that has left
    restoration = Restoration(P0, 1, STATE, committed=0, is_exact=True)
    restorer._restores[0] = _Restore(restoration, _Wanted(P0, 1, None), 0, Extent(20, 0.0))

    restorer._read()
    with pytest.raises(KafkaFatal, match="the changelog states/0 cannot be read from offset 3 to 9: damaged; "):
        restorer._read()

    assert consumer.seeks == [3]
    restorer.close(1.0)
