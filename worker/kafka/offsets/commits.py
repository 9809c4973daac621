"""The delivery's commits and what became of them.

The client tells the results of all commits in one callback. The source's own carry a text that it gives back with the
result (measured, on the mock too), failed or not: by that they are told apart, and the delivery never hears of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from worker.core.records import CommitResult, Partition
from worker.kafka.client.errors import words_of
from worker.kafka.consumer.flowing import Flowing
from worker.kafka.offsets.attempts import read_attempts
from worker.kafka.offsets.marks import Mark, Marks


class Commits:
    """Begun, and heard of. Owned by the source."""

    def __init__(self, consumer: Consumer, flowing: Flowing, marks: Marks) -> None:
        self._consumer = consumer
        self._flowing = flowing
        self._marks = marks
        self._results: list[CommitResult] = []

    def begin(self, offsets: Mapping[Partition, int]) -> None:
        """Begin an asynchronous commit of next offsets; never raises."""
        positions = [TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]
        try:
            self._consumer.commit(offsets=positions, asynchronous=True)
        except (KafkaException, RuntimeError) as error:  # it never left; RuntimeError when the consumer is closed
            self._results.append(CommitResult({}, dict.fromkeys(offsets, words_of(error))))

    def results(self) -> Sequence[CommitResult]:
        """The results since the last call, in order."""
        results, self._results = self._results, []
        return results

    def heard(self, error: KafkaError | None, positions: Sequence[TopicPartition]) -> Sequence[KafkaError]:
        """One commit came back. Returns what was wrong with it, whoever's it was."""
        committed: dict[Partition, int] = {}
        failed: dict[Partition, str] = {}
        for at in positions:
            partition = self._flowing.named(at.topic, at.partition)
            wrong = error or at.error
            if (attempts := read_attempts(at.metadata)) is not None:
                self._marks.heard(partition, Mark(at.offset, attempts), is_taken=wrong is None)
            elif wrong is None:
                committed[partition] = at.offset
            else:
                failed[partition] = wrong.str()
        if committed or failed:
            self._results.append(CommitResult(committed, failed))
        return [wrong for at in positions if (wrong := error or at.error) is not None]
