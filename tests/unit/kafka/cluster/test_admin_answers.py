"""A question that a broker does not answer gives None, whatever the reason."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException
from confluent_kafka.admin import ListOffsetsResultInfo

from worker.kafka.cluster.admin_answers import known_offset, told, told_offset


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
