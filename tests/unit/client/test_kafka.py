"""How a client is made: with right and wrong arguments, without a broker, and while a leader is being elected."""

from __future__ import annotations

import _thread
import gc
import logging
import threading
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from inference_client import InferenceClient, Unavailable, client, kafka
from inference_client.exchange import Clients
from inference_client.log import ClientLog
from tests.unit.client.builders import Stage


class Cluster:
    """A cluster that refuses some questions and then answers. `brokers`: the first answers name so many brokers.

    `unknown`: so many answers say that there is no such topic.
    """

    def __init__(self, *refusals: int, brokers: Sequence[int] = (), unknown: int = 0) -> None:
        self._refusals = list(refusals)
        self._brokers = list(brokers)
        self.unknown = unknown

    def list_topics(self, topic: str, timeout: float) -> Any:
        count = self._brokers.pop(0) if self._brokers else 1
        self.unknown -= 1
        error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART) if self.unknown >= 0 else None
        return SimpleNamespace(brokers=range(count), topics={topic: SimpleNamespace(error=error, partitions=range(3))})

    def offsets_for_times(self, asked: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        if self._refusals:
            raise KafkaException(KafkaError(self._refusals.pop(0)))
        return [TopicPartition(at.topic, at.partition, 7) for at in asked]

    def poll(self, timeout: float) -> None:
        """Bring nothing."""


def contact(
    *refusals: int, brokers: Sequence[int] = (), unknown: int = 0, patience: float = 60.0
) -> kafka._FirstContact:
    """A first contact with a cluster whose leaders refuse so many questions."""
    log = ClientLog(logging.getLogger("inference_client"))
    cluster = Cluster(*refusals, brokers=brokers, unknown=unknown)
    return kafka._FirstContact(cluster, log, "here:9092", patience)  # type: ignore[arg-type]  # what it uses


@pytest.mark.parametrize(
    ("refusals", "brokers", "unknown"),
    [
        ((KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE), (), 0),
        ((KafkaError._DESTROY_BROKER, KafkaError._TRANSPORT), (0, 1), 0),
        ((KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION), (), 2),
    ],
    ids=["a leader that was elected just now", "a broker that is just starting", "a topic that was made just now"],
)
def test_what_passes_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, refusals: Sequence[int], brokers: Sequence[int], unknown: int
) -> None:
    """A leader refuses a question or two, a starting broker names no broker, and a broker hears late of a new topic."""
    monkeypatch.setattr(kafka, "ASK_AGAIN", 0.0)

    asked = contact(*refusals, brokers=brokers, unknown=unknown)

    assert asked.partitions("answer", "answers") == 3
    assert [(at.partition, at.offset) for at in asked.ends("answers", [0, 2])] == [(0, 7), (2, 7)]


def test_what_does_not_pass_is_said() -> None:
    """The error comes at once, or when the patience is over."""
    with pytest.raises(Unavailable, match="answer topic answers: "):
        contact(KafkaError.TOPIC_AUTHORIZATION_FAILED).ends("answers", [0])
    with pytest.raises(Unavailable, match="answer topic answers: "):
        contact(KafkaError.NOT_LEADER_FOR_PARTITION, patience=0.0).ends("answers", [0])
    with pytest.raises(Unavailable, match="request topic nowhere does not exist, asked for 0 s; check its name"):
        contact(unknown=1, patience=0.0).partitions("request", "nowhere")


def test_why_no_broker_answers_is_the_last_complaint_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """The complaint says more than a timeout. The client hears it only in a poll, after the question has failed."""
    asked = contact(KafkaError._TIMED_OUT, patience=0.0)
    said = "[thrd:here:9092/bootstrap]: here:9092/bootstrap: Connect to ipv4#10.0.0.1:9092 failed: Connection refused"
    monkeypatch.setattr(asked._consumer, "poll", lambda _: asked._log.log(logging.ERROR, "", "FAIL", "client", said))

    with pytest.raises(Unavailable, match=r"answered within 0 s: here:9092/bootstrap: Connect .* refused; "):
        asked.ends("answers", [0])


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, "the topic requests does not exist any more."),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "topic requests: Broker: Topic authorization failed."),
        (KafkaError._TIMED_OUT, "no broker said within 0.2 s whether the topics are there."),
        (None, ""),
    ],
)
def test_what_became_of_the_topics_is_told(code: int | None, said: str) -> None:
    """Kafka's clients are silent when a topic was deleted, and when a broker hangs."""

    class Producer(Cluster):
        def list_topics(self, topic: str, timeout: float) -> Any:
            if code is not None:
                raise KafkaException(KafkaError(code))
            return super().list_topics(topic, timeout)

    assert kafka._amiss(Producer(), ("requests", "answers"), 0.2) == said  # type: ignore[arg-type]  # what it uses


def test_leaders_that_cannot_be_reached_are_told_from_a_broker_that_is_not_there() -> None:
    """The given address is right, but the addresses that its broker names are not."""
    with pytest.raises(Unavailable) as caught:
        contact(KafkaError._TIMED_OUT, patience=0.0).ends("answers", [0])

    assert str(caught.value).startswith("UNAVAILABLE: no broker at the addresses that here:9092 names answered within")
    assert "advertised.listeners" in str(caught.value)


@pytest.mark.parametrize("server", ["127.0.0.1:1", "no-such-host.invalid:9092"])
def test_a_broker_that_is_not_there_is_one_error_in_time(
    server: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The error names the address and the cure; the log has none of librdkafka's many lines."""
    monkeypatch.setattr(kafka, "LEAST", 0.5)
    began = time.monotonic()

    with pytest.raises(Unavailable) as caught:
        InferenceClient(server, requests="requests", answers="answers", timeout=0.1)

    assert time.monotonic() - began < 3.0  # 0.5 s, and the delay of a busy machine; it took 15 s, or 3.4 s to close
    assert f"no broker at {server} answered within 0.5 s: " in str(caught.value)
    assert "is one running there? Check the bootstrap address" in str(caught.value)
    assert [record for record in caplog.records if record.name == "inference_client"] == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        *[
            (wrong, "timeout must be above 0 and at most 2,147,483 s, and in_flight at least")
            for wrong in ({"timeout": 0.0}, {"timeout": float("nan")}, {"timeout": 2_147_484.0}, {"in_flight": 2.5})
        ],
        ({"when_full": "nope"}, "when_full must be 'wait' or 'raise', got 'nope'"),
        ({"answers": "requests"}, "requests and answers must be two topics, got 'requests' for both"),
        ({"config": {"error_cb": print, "enable.idempotence": "TRUE"}}, "config: error_cb: the client's own, and"),
        ({"config": {"partitioner": "random", "group.id": "a"}}, "config: partitioner, group.id: the client's own"),
        ({"config": {"linger.msec": 5}}, 'config: No such configuration property: "linger.msec"'),
    ],
)
def test_what_is_no_choice_and_no_setting_is_said_before_it_connects(wrong: dict[str, Any], said: str) -> None:
    """The error names the argument."""
    with pytest.raises(ValueError, match=said):
        InferenceClient("127.0.0.1:1", **{"requests": "requests", "answers": "answers", **wrong})


@pytest.mark.parametrize(("maker", "module"), [("gevent", "gevent.thread"), ("eventlet", "eventlet.green.thread")])
def test_green_threads_are_refused(monkeypatch: pytest.MonkeyPatch, maker: str, module: str) -> None:
    """The client's own thread would wait for Kafka and let no other run: the program hung as soon as it was made."""

    def start_new_thread() -> None: ...

    start_new_thread.__module__ = module
    monkeypatch.setattr(_thread, "start_new_thread", start_new_thread)

    with pytest.raises(RuntimeError, match=f"{maker} has replaced the system's threads"):
        InferenceClient("localhost:1", requests="r", answers="a", timeout=0.1)


@pytest.mark.filterwarnings("error")
def test_where_no_thread_can_be_started_nothing_is_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may allow no more threads. The client that was not made does not complain when it is forgotten."""

    class Refused(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    stage = Stage()
    monkeypatch.setattr(client, "connect", lambda *_: Clients(stage.producer, stage.consumer))
    monkeypatch.setattr(client, "Thread", Refused)

    with pytest.raises(RuntimeError, match="can't start new thread"):
        InferenceClient("localhost:1", requests="r", answers="a")
    gc.collect()

    assert stage.consumer.is_closed
