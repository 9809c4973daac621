"""Faults of requests by other producers of the request topic, and by a broker's disk.

A batch is spoiled on disk before anybody can read it: its transaction is committed only afterwards. Strangers' requests
have numbers that the load never reaches. Owns only the next number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count, islice
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.faults.books import Books, Source
from tests.faults.checker import Checker, Topics
from tests.faults.plan import Fault
from tests.faults.requests import Form, Request, request
from tests.kafka.spoiled_batches import AS_ONE, SpoiledBatch, spoil

FIRST = 1_000_000_000  # the first of their numbers
BATCH = 10
ENDED_WITHIN = 30.0  # a transaction, seconds
TRIES = 3
LEAST_TIMEOUT = 5.0  # of a transaction, seconds; a busy machine must be able to begin it


class Strangers:
    """Publishes in addition to the load, one fault at a time; `rest(seconds)` waits."""

    def __init__(  # the things they touch, and the listeners
        self,
        servers: str,
        disks: Sequence[Path],
        topics: Topics,
        books: Books,
        checker: Checker,
        rest: Callable[[float], None],
        *,
        form: Form,
        has_state: bool,
    ) -> None:
        self._servers = servers
        self._disks = disks
        self._topics = topics
        self._books = books
        self._checker = checker
        self._rest = rest
        self._form = form
        self._has_state = has_state
        self._next = count(FIRST)

    def spoil_batch(self, fault: Fault) -> str:
        """Publish one batch of requests of one key, and spoil it on all disks from one of its records on."""
        producer, lies = self._published(self._alike(fault), transaction_timeout=60.0)
        partition = next(iter(lies)).partition
        offsets = sorted(source.offset for source in lies)
        assert offsets == list(range(offsets[0], offsets[0] + BATCH)), "they are not one batch"
        at = offsets[1 + fault.choose(BATCH - 1)]  # the checker goes on from the batch's record before it
        spoiled = [batch for disk in self._disks if (batch := _spoiled(disk, *self._topics.lying(partition), at))]
        assert spoiled
        lost = {Source(partition, offset): lies[Source(partition, offset)] for offset in spoiled[0].lost}
        self._checker.pass_over(partition, spoiled[0].offset, spoiled[0].last + 1, lost)
        for source, number in lies.items():
            self._books.published(source, number)
        producer.commit_transaction(ENDED_WITHIN)
        self._rest(fault.seconds)
        return f"{len(lost)} of {BATCH} requests in partition {partition}, from offset {at} on"

    def hold_transaction(self, fault: Fault) -> str:
        """Leave a transaction open for a while; then commit it, abort it, or leave it to its timeout."""
        numbers = list(islice(self._next, 3))
        producer, lies = self._published(numbers, transaction_timeout=fault.seconds + LEAST_TIMEOUT)
        self._rest(fault.seconds)
        if fault.pick < 1 / 3:
            producer.commit_transaction(ENDED_WITHIN)
            for source, number in lies.items():
                self._books.published(source, number)
            return f"for {fault.seconds:.1f} s, committed"
        if fault.pick < 2 / 3:
            producer.abort_transaction(ENDED_WITHIN)
            return f"for {fault.seconds:.1f} s, aborted"
        return f"for {fault.seconds:.1f} s, left to its timeout"

    def _published(self, numbers: Sequence[int], transaction_timeout: float) -> tuple[Producer, dict[Source, int]]:
        """An open transaction with these requests, and their places.

        Brokers that forget ids soon refuse a producer that is slow between its id and its first request.
        """
        for _ in range(TRIES):
            producer = self._begin(transaction_timeout)
            lies = self._publish(producer, numbers)
            if len(lies) == len(numbers):
                return producer, lies
            with suppress(KafkaException):
                producer.abort_transaction(ENDED_WITHIN)
        raise AssertionError(f"{len(lies)} of {len(numbers)} requests are acknowledged, after {TRIES} tries")

    def _begin(self, transaction_timeout: float) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self._servers,
                "transactional.id": f"{self._topics.answers}-stranger-{next(self._next)}",
                "transaction.timeout.ms": int(transaction_timeout * 1000),
                "message.timeout.ms": int(transaction_timeout * 1000),
                "partitioner": "murmur2_random",
                "log_level": 2,
                **AS_ONE,
                "linger.ms": 500,  # no more than the shortest of these transactions takes
            }
        )
        producer.init_transactions(ENDED_WITHIN)
        producer.begin_transaction()
        return producer

    def _publish(self, producer: Producer, numbers: Sequence[int]) -> dict[Source, int]:
        """Publish requests; return the places of requests that all in-sync brokers have."""
        lies: dict[Source, int] = {}
        for number in numbers:
            asked = self._asked(number)
            topic, partition = self._topics.taking(asked)
            producer.produce(
                topic,
                asked.value,
                asked.key,
                partition,
                partial(_note, lies, number, self._topics.firsts[topic]),
                headers=list(asked.headers),
            )
        producer.flush(ENDED_WITHIN)
        return lies

    def _alike(self, fault: Fault) -> list[int]:
        """Good requests of one key, which share a partition."""
        key = self._asked(fault.choose(100_000)).key or b"key-0"
        good = (number for number in self._next if self._asked(number).key == key and self._asked(number).code is None)
        return list(islice(good, BATCH))

    def _asked(self, number: int) -> Request:
        return request(number, self._topics.partitions, self._form, has_state=self._has_state)


def _note(lies: dict[Source, int], number: int, first: int, error: KafkaError | None, message: Message) -> None:
    """Note an acknowledged request's place."""
    if error is None:
        lies[Source(first + (message.partition() or 0), message.offset() or 0)] = number


def _spoiled(disk: Path, topic: str, partition: int, offset: int) -> SpoiledBatch | None:
    """Spoil a batch on one disk; None where this broker does not have it yet: it will get the others' copy."""
    with suppress(AssertionError):
        return spoil(disk, topic, partition, offset)
    return None
