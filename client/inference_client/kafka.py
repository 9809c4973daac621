"""Kafka's two clients, made and placed: a producer, and a consumer that reads from where the answers end now.

The consumer is given its partitions and offsets (`assign`) before the first request is sent, so that no answer can lie
before them. It joins no group, commits nothing, and reads only what is committed.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from inference_client.errors import Unavailable
from inference_client.exchange import Clients

Config = Mapping[str, Any]
ReplyPartition = int | Literal["any"] | None

_LOG = logging.getLogger("inference_client")
ANSWER_TIMEOUT = 15.0  # seconds of each question at the start
ASK_AGAIN = 0.2  # seconds; about as long as an election takes
_ELECTING = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
)


class Topics(NamedTuple):
    """Where requests go, and where answers are read: in one partition, in any one, or (None) in all of them."""

    requests: str
    answers: str
    reply_partition: ReplyPartition


def connect(config: Config, topics: Topics, longest: float, hear: Callable[[KafkaError], None]) -> Clients:
    """`longest`: seconds for which a request is worth sending. `hear` is called with what both clients complain of.

    Raises `Unavailable` when no broker answers, or a topic is not there for us, and `ValueError` for a `config` that
    Kafka's client does not take.
    """
    try:
        producer = Producer(_producer_config(config, longest, hear), logger=_LOG)
        consumer = Consumer(_consumer_config(config, hear), logger=_LOG)
    except KafkaException as error:
        raise ValueError(f"config: {error.args[0].str()}") from error
    try:
        ends = _patiently(lambda: _ends(consumer, topics.answers, _numbers(consumer, topics)))
        consumer.assign(ends)
    except KafkaException as error:
        consumer.close()
        raise Unavailable(f"topics {topics.requests} and {topics.answers}: {error.args[0].str()}") from error
    if topics.reply_partition is None:
        return Clients(producer, consumer, (), lambda wait: _partitions_or_none(producer, topics.answers, wait))
    reply = [("reply-topic", topics.answers.encode()), ("reply-partition", b"%d" % ends[0].partition)]
    return Clients(producer, consumer, reply)


def _patiently(ask: Callable[[], list[TopicPartition]]) -> list[TopicPartition]:
    """What the brokers answer. A leader that was elected just now refuses a question or two (seen 2026)."""
    give_up = time.monotonic() + ANSWER_TIMEOUT
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in _ELECTING or time.monotonic() > give_up:
                raise
            time.sleep(ASK_AGAIN)


def _numbers(consumer: Consumer, topics: Topics) -> Sequence[int]:
    _partitions(consumer, topics.requests, ANSWER_TIMEOUT)
    there = range(_partitions(consumer, topics.answers, ANSWER_TIMEOUT))
    chosen = topics.reply_partition
    if chosen is None:
        return there
    if chosen == "any":
        return [random.choice(there)]  # noqa: S311  # no secret
    if chosen not in there:
        raise Unavailable(f"{topics.answers} has no partition {chosen}, it has {len(there)}")
    return [chosen]


def _ends(consumer: Consumer, topic: str, numbers: Sequence[int]) -> list[TopicPartition]:
    asked = [TopicPartition(topic, number, OFFSET_END) for number in numbers]
    found = consumer.offsets_for_times(asked, timeout=ANSWER_TIMEOUT)
    for at in found:
        if at.error is not None:
            raise KafkaException(at.error)
    return found


def _partitions(client: Consumer | Producer, topic: str, timeout: float) -> int:
    found = client.list_topics(topic, timeout=timeout).topics[topic]
    if found.error is not None:
        raise KafkaException(found.error)
    return len(found.partitions)


def _partitions_or_none(producer: Producer, topic: str, timeout: float) -> int | None:
    """The consumer would answer when its fetch does: half a second later, where nothing comes (seen 2026)."""
    try:
        return _partitions(producer, topic, timeout)
    except KafkaException:
        return None


def _producer_config(config: Config, longest: float, hear: Callable[[KafkaError], None]) -> dict[str, Any]:
    return {
        **_SHARED,
        "linger.ms": 0,
        "queue.buffering.max.kbytes": 256 * 1024,
        # With librdkafka's 5 all are out most of the time, of few records each, and each new record wakes its thread
        # for nothing: 2 µs of a request's 13 (tests.bench.client, 2026-11-26). With 2 one is made while one is away.
        "max.in.flight": 2,
        **config,
        "error_cb": hear,
        "enable.idempotence": True,  # in order, and none twice
        "partitioner": "murmur2_random",  # Java's: a key has one partition, whichever client publishes
        "delivery.report.only.error": True,  # a success is known by its answer
        # What no broker has taken by then is not waited for: sent later it would only be refused, as late.
        "message.timeout.ms": int(longest * 1000),
    }


def _consumer_config(config: Config, hear: Callable[[KafkaError], None]) -> dict[str, Any]:
    return {
        **_SHARED,
        "queued.max.messages.kbytes": 32 * 1024,
        "fetch.queue.backoff.ms": 20,  # the default of 1 s starves a reader that is slower than its network
        **config,
        "error_cb": hear,
        "group.id": "inference-client",  # librdkafka wants one; it is never joined, and nothing committed to it
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",  # where retention has overtaken us, the oldest that is left
    }


_SHARED: Config = {
    "client.id": "inference-client",
    "socket.keepalive.enable": True,  # firewalls drop idle connections without a word
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 1000,  # the default of 10 s is how long a broker that is back goes unnoticed
    "log.connection.close": False,  # brokers close idle connections; that is no news
}
