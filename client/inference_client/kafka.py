"""Makes Kafka's two clients: a producer, and a consumer that reads from the present end of the answers.

The consumer is given its partitions and offsets (`assign`) before the first request is sent, so that no answer can be
before these offsets. It joins no group, commits nothing, and reads only committed records.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from inference_client.errors import Unavailable
from inference_client.exchange import Clients
from inference_client.log import ClientLog

Config = Mapping[str, Any]
ReplyPartition = int | Literal["any"] | None
Answered = TypeVar("Answered")

_LOG = logging.getLogger("inference_client")
# Seconds for all questions at the start together: as long as a request may take, but enough for a connection with TLS
# and a login, and no longer than a person waits.
LEAST, MOST = 2.0, 15.0
ASK_AGAIN = 0.2  # seconds; about as long as an election takes
# Polls for the reason why no broker answered, and seconds of each: the log line may come just after the failure.
LISTENS, LISTEN = 5, 0.02
_UNANSWERED = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT)  # noqa: SLF001  # librdkafka's own codes begin so
# A broker may not know a topic that was made just now: 2 of 40 clients met such a broker (2026-11).
_UNKNOWN = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
)
# Errors that pass by themselves. A leader that was elected just now refuses a question or two, and a broker that is
# just starting names no broker, or another node than the one that was asked (seen 2026).
_PASSING = (
    *_UNANSWERED,
    *_UNKNOWN,
    KafkaError._DESTROY_BROKER,  # noqa: SLF001
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
)
_NO_TOPIC = "check its name, or make a worker's topics with `inference-worker check --create-topics`"
_NO_BROKER = "is one running there? Check the bootstrap address, the listener's port, and security.protocol in config"
_NO_LEADER = "check the brokers' advertised.listeners: they must be addresses that can be reached from here"


class Topics(NamedTuple):
    """The topics of requests and answers. Answers are read in one partition, in any one, or (None) in all of them."""

    requests: str
    answers: str
    reply_partition: ReplyPartition


def connect(config: Config, topics: Topics, longest: float, hear: Callable[[KafkaError], None]) -> Clients:
    """Make both clients. `longest`: seconds for which a request is worth sending. `hear` is told their complaints.

    Raises `Unavailable` if no broker answers in time, or a topic is not there for us, and `ValueError` for a `config`
    that Kafka's client does not take.
    """
    log = ClientLog(_LOG)
    sides = _producer_config(config, longest, hear), _consumer_config(config, hear)
    _check_kept(config, sides)
    try:
        producer = Producer(sides[0], logger=log)
        consumer = Consumer(sides[1], logger=log)
    except KafkaException as error:
        raise ValueError(f"config: {error.args[0].str()}") from error
    contact = _FirstContact(consumer, log, config["bootstrap.servers"], min(max(longest, LEAST), MOST))
    try:
        ends = contact.ends(topics.answers, _numbers(contact, topics))
        consumer.assign(ends)
    except BaseException:
        consumer.close()
        raise
    log.is_open = True
    amiss_now = partial(_amiss, producer, (topics.requests, topics.answers))
    if topics.reply_partition is None:
        partitions_now = partial(_partitions_or_none, producer, topics.answers)
        return Clients(producer, consumer, (), partitions_now, amiss_now)
    reply = [("reply-topic", topics.answers.encode()), ("reply-partition", b"%d" % ends[0].partition)]
    return Clients(producer, consumer, reply, None, amiss_now)


class _FirstContact:
    """The questions to the brokers before the first request, all of them within `patience` seconds.

    They raise `Unavailable`. They wait for a broker or a topic that is not there yet.
    """

    def __init__(self, consumer: Consumer, log: ClientLog, servers: str, patience: float) -> None:
        self._consumer = consumer
        self._log = log
        self._servers = servers
        self._patience = patience
        self._give_up = time.monotonic() + patience

    def partitions(self, role: str, topic: str) -> int:
        """The topic's number of partitions. `role` names the topic's purpose in an error."""
        try:
            return self._patiently(lambda left: _partitions(self._consumer, topic, left))
        except KafkaException as error:
            raise Unavailable(self._why(f"{role} topic {topic}", error.args[0], self._servers, _NO_BROKER)) from error

    def ends(self, topic: str, numbers: Sequence[int]) -> list[TopicPartition]:
        """The present ends of these partitions."""
        try:
            return self._patiently(lambda left: _ends(self._consumer, topic, numbers, left))
        except KafkaException as error:
            leaders = f"the addresses that {self._servers} names"
            raise Unavailable(self._why(f"answer topic {topic}", error.args[0], leaders, _NO_LEADER)) from error

    def _patiently(self, ask: Callable[[float], Answered]) -> Answered:
        """Ask until the brokers answer, an error is final, or the time is over."""
        while True:
            try:
                return ask(max(ASK_AGAIN, self._give_up - time.monotonic()))
            except KafkaException as error:
                if error.args[0].code() not in _PASSING or time.monotonic() + ASK_AGAIN > self._give_up:
                    raise
                time.sleep(ASK_AGAIN)

    def _why(self, which: str, error: KafkaError, asked: str, cure: str) -> str:
        if error.code() in _UNKNOWN:
            return f"{which} does not exist, asked for {self._patience:g} s; {_NO_TOPIC}"
        if error.code() not in _UNANSWERED:
            return f"{which}: {error.str()}"
        for _ in range(LISTENS):  # the client logs only in a poll, one line at a time
            if not self._log.last:
                self._consumer.poll(LISTEN)
        return f"no broker at {asked} answered within {self._patience:g} s: {self._log.last or error.str()}; {cure}"


def _numbers(contact: _FirstContact, topics: Topics) -> Sequence[int]:
    contact.partitions("request", topics.requests)
    there = range(contact.partitions("answer", topics.answers))
    chosen = topics.reply_partition
    if chosen is None:
        return there
    if chosen == "any":
        return [random.choice(there)]  # noqa: S311  # no secret
    if chosen not in there:
        raise Unavailable(f"{topics.answers} has no partition {chosen}, it has {len(there)}")
    return [chosen]


def _ends(consumer: Consumer, topic: str, numbers: Sequence[int], timeout: float) -> list[TopicPartition]:
    asked = [TopicPartition(topic, number, OFFSET_END) for number in numbers]
    found = consumer.offsets_for_times(asked, timeout=timeout)
    for at in found:
        if at.error is not None:
            raise KafkaException(at.error)
    return found


def _partitions(client: Consumer | Producer, topic: str, timeout: float) -> int:
    cluster = client.list_topics(topic, timeout=timeout)
    if not cluster.brokers:
        raise KafkaException(KafkaError(KafkaError.BROKER_NOT_AVAILABLE, "it says that no broker serves its cluster"))
    found = cluster.topics[topic]
    if found.error is not None:
        raise KafkaException(found.error)
    return len(found.partitions)


def _partitions_or_none(producer: Producer, topic: str, timeout: float) -> int | None:
    """Ask by the producer: on the consumer the answer waits for a fetch, half a second if nothing comes (seen 2026)."""
    try:
        return _partitions(producer, topic, timeout)
    except KafkaException:
        return None


def _amiss(producer: Producer, topics: Sequence[str], wait: float) -> str:
    """The first fault of one of the topics, if there is one: Kafka's clients tell it late, once or never."""
    for topic in topics:
        try:
            _partitions(producer, topic, wait)
        except KafkaException as error:
            if error.args[0].code() in _UNANSWERED:
                return f"no broker said within {wait:g} s whether the topics are there."
            gone = error.args[0].code() in _UNKNOWN
            return f"the topic {topic} does not exist any more." if gone else f"topic {topic}: {error.args[0].str()}."
    return ""


def _check_kept(config: Config, sides: Sequence[Config]) -> None:
    """Raises `ValueError` for settings that would be ignored: a callback that is never called, another partitioner."""
    given = {key: str(value).lower() for key, value in config.items()}
    lost = [key for key, value in given.items() if any(str(side[key]).lower() != value for side in sides)]
    if lost:
        raise ValueError(f"config: {', '.join(lost)}: the client's own, and cannot be set")


def _producer_config(config: Config, longest: float, hear: Callable[[KafkaError], None]) -> dict[str, Any]:
    tuned = {
        **_SHARED,
        "linger.ms": 0,
        "queue.buffering.max.kbytes": 256 * 1024,
        # With librdkafka's 5 all are away most of the time, with few records each, and each new record wakes its thread
        # in vain: 2 µs of a request's 13 (bench.client, 2026-11-26). With 2, one is filled while one is away.
        "max.in.flight": 2,
        **config,
    }
    return tuned | {
        "error_cb": hear,
        "enable.idempotence": True,  # in order, and none twice
        "partitioner": "murmur2_random",  # Java's: a key has one partition, whichever client publishes
        "delivery.report.only.error": True,  # a success is known by its answer
        # A request that no broker has taken by then is given up: the worker would only refuse it as late.
        "message.timeout.ms": int(longest * 1000),
    }


def _consumer_config(config: Config, hear: Callable[[KafkaError], None]) -> dict[str, Any]:
    tuned = {
        **_SHARED,
        "queued.max.messages.kbytes": 32 * 1024,
        "fetch.queue.backoff.ms": 20,  # the default of 1 s starves a reader that is slower than its network
        **config,
    }
    return tuned | {
        "error_cb": hear,
        "group.id": "inference-client",  # librdkafka wants a group; we never join it or commit to it
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": False,  # the end would be told as a complaint
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",  # if retention has overtaken us, go on at the oldest record
    }


_SHARED: Config = {
    "client.id": "inference-client",
    "socket.keepalive.enable": True,  # firewalls drop idle connections without a word
    # The first backoff stays at librdkafka's 100 ms: with 20 and an unknown host name, a client took 3.4 s to end
    # (2026-11-26).
    "reconnect.backoff.max.ms": 1000,  # at the default of 10 s a broker that is back goes unnoticed for that long
    "log.connection.close": False,  # brokers close idle connections; that is no news
}
