"""Where answers go: one idempotent producer, used by the loop's thread alone.

Owns the producer and the messages it has no room for. An answer is durable when its delivery report says so, and by
nothing else: `flush() == 0` proves nothing (measured). Reports are recorded by a callback, `Place.reported`, that does
nothing more and never raises; `poll` hands them on. A broker that is away is waited for; a refusal is fatal.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as Report

from worker.core.failures import BadConfiguration, KafkaFatal
from worker.core.ledger import Place
from worker.core.records import Message
from worker.kafka.client_config import producer_config
from worker.kafka.client_log import ClientLog
from worker.kafka.client_statistics import Watcher
from worker.kafka.producing import partition_of, tell
from worker.kafka.topics import Topics
from worker.settings import KafkaSettings

# Only while a flush is under way does the client send what waits for its `linger.ms`, and it counts in milliseconds.
SHORTEST_FLUSH = 0.001


class Reports(list[Place]):
    """Places whose messages are durable, one entry for each message; and why one never will be, if so."""

    def __init__(self) -> None:
        super().__init__()
        self.refusal: str | None = None

    def refuse(self, place: Place, error: KafkaError, report: Report) -> None:
        """Keep the first reason. Like all that a report calls, it raises nothing."""
        self.refusal = self.refusal or (
            f"the broker refused a record for topic {report.topic()}: {error.str()}; nothing past "
            f"{place.line.partition}/{place.offset} is committed: mend the topic or its access, and start again"
        )


class KafkaSink:
    """The producer of answers and dead letters."""

    def __init__(
        self, kafka: KafkaSettings, topics: Topics, logger: logging.Logger, watcher: Watcher | None = None
    ) -> None:
        """`watcher` is told once a second what is not acknowledged yet; None: nobody asks."""
        self._watcher = watcher
        self._partitions: Mapping[str, int] = topics.partitions
        self._log = ClientLog(logger)
        self._reports = Reports()
        self._overflow: deque[tuple[Message, Place]] = deque()
        config = producer_config(kafka, topics.largest_message, topics.largest_batch)
        try:
            self._producer = Producer({**config, "stats_cb": self._on_statistics}, logger=self._log)
        except (KafkaException, ValueError, TypeError) as error:
            raise BadConfiguration(f"WORKER_KAFKA__CONFIG: the producer refuses its configuration: {error}") from error

    @property
    def undelivered(self) -> int:
        """Messages taken and not yet reported on."""
        return len(self._producer) + len(self._overflow)

    def send(self, message: Message, place: Place) -> None:
        """Take a message for delivery, in order; `poll` returns its place when it is durable. Never waits.

        Raises `KafkaFatal` when the producer cannot take this message or any.
        """
        if self._overflow:
            self._overflow.append((message, place))
            return
        try:
            self._produce(message, place)
        except BufferError:  # the client's queue is full
            self._overflow.append((message, place))

    def poll(self, timeout: float) -> Sequence[Place]:
        """The places of messages now durable, one for each message, waiting at most `timeout` seconds for the first.

        Raises `KafkaFatal` when the broker refused a message or the producer is broken.
        """
        try:
            self._producer.poll(timeout)
        except Exception as error:
            raise self._broken(error) from error
        if self._reports.refusal is not None:
            raise KafkaFatal(self._reports.refusal)
        self._send_late()
        delivered = self._reports[:]
        self._reports.clear()
        return delivered

    def push(self) -> None:
        """Send at once what waits for company in the client. Takes until it is acknowledged, but a millisecond at most.

        Raises `KafkaFatal` as `poll` does.
        """
        try:
            self._producer.flush(SHORTEST_FLUSH)
        except Exception as error:
            raise self._broken(error) from error

    def close(self, timeout: float) -> int:
        """Wait up to `timeout` seconds for what is under way, then let go. Returns how many messages are given up."""
        try:
            self._producer.flush(timeout)
            given_up = self.undelivered
            self._producer.purge()
        except Exception as error:  # noqa: BLE001  # a SystemError, as in `poll`: there is nothing left to save
            self._log.tell("close", f"the producer did not close in good order: {error.__cause__ or error}")
            return self.undelivered
        return given_up

    @staticmethod
    def _broken(error: Exception) -> KafkaFatal:
        # A broken producer says so by a SystemError around the KafkaException that has the reason (measured).
        return KafkaFatal(f"the producer failed: {error.__cause__ or error}; start again")

    def _send_late(self) -> None:
        """What there is room for by now, in order."""
        with suppress(BufferError):
            while self._overflow:
                self._produce(*self._overflow[0])
                self._overflow.popleft()

    def _produce(self, message: Message, place: Place) -> None:
        """Raises `BufferError` when the client's queue is full, and `KafkaFatal` as `send` does."""
        topic, key, value, headers, _ = message
        partition = partition_of(message, self._partitions)
        place.reports = self._reports
        try:
            self._producer.produce(topic, value, key, partition, place.reported, None, 0, headers)  # type: ignore[arg-type]  # a list is invariant
        except BufferError:
            raise
        except Exception as error:
            reason = error.__cause__ or error
            raise KafkaFatal(f"the producer does not take a record for {topic}: {reason}") from error

    def _on_statistics(self, statistics: str) -> None:
        """Runs inside `produce`, `poll` and `flush`; an exception here would be raised there, out of place."""
        tell(self._watcher, self._log, statistics)

    def __repr__(self) -> str:
        refusal = self._reports.refusal
        return f"<KafkaSink undelivered={self.undelivered} overflow={len(self._overflow)} refused={refusal}>"
