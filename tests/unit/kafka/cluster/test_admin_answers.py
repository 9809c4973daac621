"""A question that a broker does not answer gives None, whatever the reason."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException
from confluent_kafka.admin import ListOffsetsResultInfo

from worker.kafka.client.errors import ClientLog
from worker.kafka.cluster import admin_answers
from worker.kafka.cluster.admin_answers import OUTLASTING, described_group, known_offset, told, told_offset
from worker.settings import Connection


def test_a_refusal_and_silence_are_no_answer() -> None:
    """The client may not ask, the broker does not know the question, or the client's time or ours runs out."""
    answered, refused = Future[str](), Future[str]()
    answered.set_result("said")
    refused.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))

    assert [told(asked, 0) for asked in (answered, refused, Future[str]())] == ["said", None, None]


def test_an_offset_that_is_none_is_no_answer() -> None:
    """The client reports a leader that does not answer in time like this, and without an error."""
    asked = Future[ListOffsetsResultInfo]()
    asked.set_result(cast("ListOffsetsResultInfo", SimpleNamespace(offset=OFFSET_INVALID)))

    assert told_offset(asked, 0) is None
    with pytest.raises(KafkaException, match="does not say"):
        known_offset(asked)


def test_a_client_is_deleted_long_before_it_gives_up_a_question_about_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that came after the client's own time would end the process."""
    gave_up_after: list[float] = []

    class Silent:
        def __init__(self, *_: object, **__: object) -> None:
            self._timeout = 0.0

        def describe_consumer_groups(self, groups: Sequence[str], **asked: Any) -> Mapping[str, Future[Any]]:
            self._timeout = asked["request_timeout"]
            return {group: Future() for group in groups}

        def __del__(self) -> None:
            gave_up_after.append(self._timeout)

    monkeypatch.setattr(admin_answers, "AdminClient", Silent)

    with pytest.raises(TimeoutError):
        described_group(Connection(bootstrap_servers="b:9092"), "group", 0.0, ClientLog(logging.getLogger()))

    assert gave_up_after == [OUTLASTING]
