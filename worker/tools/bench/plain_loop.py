"""The loop that one writes without a framework: poll, answer, produce. What a measurement compares the worker with.

It promises nothing: offsets are committed by a timer, whatever became of the answers, and a bad request ends it. It is
written to be fast at what it does: no answer waits for company that is not coming, and no partition for a rebalance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from worker.core.failures import KafkaFatal
from worker.core.records import Headers
from worker.kafka.client.command_clients import client_log, is_closed, open_client, reach, why_unusable
from worker.kafka.client.config import Config
from worker.settings import Connection

_STATUS = ("status", b"ok")
# With nothing to do it waits so long for the first record, seconds.
_IDLE = 0.1
_FLUSH = 0.001  # the client sends at once what waits for its `linger.ms`, as the worker's sink has it
_FULL = 0.05

_READING: Config = {"fetch.queue.backoff.ms": 20, "queued.max.messages.kbytes": 32 * 1024}
_WRITING: Config = {"linger.ms": 5, "queue.buffering.max.messages": 100_000}
_SAFE: Config = {"enable.idempotence": True, "partitioner": "murmur2_random"}


class PlainLoop:
    """Answers one topic into another until it is killed. `answer` makes a value of a request's value and headers."""

    def __init__(
        self, kafka: Connection, requests: str, answers: str, group: str, answer: Callable[[bytes, Headers], bytes]
    ) -> None:
        """Raises `BadConfiguration` when no broker answers, or there is no such topic for us."""
        self._requests, self._answers, self._answer = requests, answers, answer
        self._partitions = sorted(reach(requests, kafka, "READ").cluster.topics[requests].partitions)
        reading = {"group.id": group, "enable.auto.commit": True, "auto.offset.reset": "earliest"}
        self._consumer = open_client(Consumer, kafka, _READING, reading, client_log())
        self._producer = open_client(Producer, kafka, _WRITING, _SAFE, client_log())

    def assign(self, index: int, of: int) -> None:
        """Take each of so many shares' partitions from their beginnings; `index` is ours, from 0."""
        mine = self._partitions[index::of]
        self._consumer.assign([TopicPartition(self._requests, number, 0) for number in mine])

    def run(self, at_once: int) -> None:
        """Take `at_once` records at a time at most. Raises `KafkaFatal` when a topic is closed to us."""
        while True:
            messages = self._consumer.consume(at_once, 0)
            if not messages:
                self._push()
                first = self._consumer.poll(_IDLE)
                messages = [] if first is None else [first]
            self._answer_all(messages)

    def _answer_all(self, messages: Sequence[Message]) -> None:
        for message in messages:
            if (error := message.error()) is None:
                self._produce(message)
            elif is_closed(error):
                raise KafkaFatal(why_unusable(self._requests, error, "READ"))
        self._producer.poll(0)

    def _produce(self, message: Message) -> None:
        headers = cast("Headers", message.headers() or ())
        value = self._answer(message.value() or b"", headers)
        while True:
            try:
                self._producer.produce(self._answers, value, message.key(), headers=[*headers, _STATUS])
            except BufferError:
                self._producer.poll(_FULL)
            else:
                return

    def _push(self) -> None:
        if len(self._producer):
            self._producer.flush(_FLUSH)
