"""What a client does when it is made: with what it is given, and while a leader is being elected."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from inference_client import InferenceClient, kafka


def test_a_leader_that_was_elected_just_now_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It refuses a question or two; what will not change is said at once."""
    monkeypatch.setattr(kafka, "ASK_AGAIN", 0.0)
    refusals = [KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION), KafkaError(KafkaError.LEADER_NOT_AVAILABLE)]
    ends = [TopicPartition("answers", 0, 7)]

    def ask() -> list[TopicPartition]:
        if refusals:
            raise KafkaException(refusals.pop())
        return ends

    assert kafka._patiently(ask) == ends
    refusals.append(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(KafkaException):
        kafka._patiently(ask)


def test_an_election_that_does_not_end_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while."""
    monkeypatch.setattr(kafka, "ANSWER_TIMEOUT", -1.0)

    def ask() -> list[TopicPartition]:
        raise KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))

    with pytest.raises(KafkaException):
        kafka._patiently(ask)


@pytest.mark.parametrize(
    "wrong",
    [{"timeout": seconds} for seconds in (0.0, -1.0, float("nan"), float("inf"), 2_147_484.0)]
    + [{"in_flight": 0}, {"in_flight": 2.5}],
)
def test_what_no_client_can_keep_is_refused_before_it_connects(wrong: dict[str, float]) -> None:
    """Kafka's client would say so in its own words, or Python that it is no integer."""
    with pytest.raises(ValueError, match="timeout must be above 0 and at most 2,147,483 s, and in_flight at least"):
        InferenceClient("127.0.0.1:1", requests="requests", answers="answers", **wrong)  # type: ignore[arg-type]  # of any name


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"when_full": "nope"}, "when_full must be 'wait' or 'raise', got 'nope'"),
        ({"config": {"linger.msec": 5}}, 'config: No such configuration property: "linger.msec"'),
    ],
)
def test_what_is_no_choice_and_no_setting_is_said_before_it_connects(wrong: dict[str, Any], said: str) -> None:
    """With its name."""
    with pytest.raises(ValueError, match=said):
        InferenceClient("127.0.0.1:1", requests="requests", answers="answers", **wrong)
