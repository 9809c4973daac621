"""Sentry's arroyo: a batch step, one inference for the batch, the answers produced one by one, then the commit.

Set: `use_simple_futures`, which its producer offers for throughput. Left at their defaults: the producer's linger, and
a commit of the delivered answers once a second. A batch waits 5 ms at most until it is full.
"""

from __future__ import annotations

from collections.abc import Mapping

from arroyo.backends.kafka import (
    KafkaConsumer,
    KafkaPayload,
    KafkaProducer,
    build_kafka_configuration,
    build_kafka_consumer_configuration,
)
from arroyo.commit import ONCE_PER_SECOND
from arroyo.processing import StreamProcessor
from arroyo.processing.strategies import BatchStep, CommitOffsets, Produce, RunTask, UnbatchStep
from arroyo.processing.strategies.abstract import ProcessingStrategy, ProcessingStrategyFactory
from arroyo.processing.strategies.batching import ValuesBatch
from arroyo.types import BaseValue, Commit, Message, Partition, Topic, Value

from bench.loops.task import Run, Task, joined, model_call

LINGER = 0.005  # seconds


class Steps(ProcessingStrategyFactory[KafkaPayload]):
    """Batch → inference → one answer each → produce → commit."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._run: Run = model_call(task.model, task.batch)
        self._producer = KafkaProducer(
            build_kafka_configuration({"enable.idempotence": True}, bootstrap_servers=[task.bootstrap]),
            use_simple_futures=True,
        )

    def create_with_partitions(
        self, commit: Commit, partitions: Mapping[Partition, int]
    ) -> ProcessingStrategy[KafkaPayload]:
        """Called by arroyo at each assignment."""
        produce = Produce(self._producer, Topic(self._task.responses), CommitOffsets(commit))
        return BatchStep(self._task.batch, LINGER, RunTask(self._answer, UnbatchStep(produce)))

    def _answer(self, message: Message[ValuesBatch[KafkaPayload]]) -> ValuesBatch[KafkaPayload]:
        batch = message.payload
        results = self._run(joined([each.payload.value for each in batch]))
        return [_answered(each, y.tobytes()) for each, y in zip(batch, results, strict=True)]


def _answered(request: BaseValue[KafkaPayload], value: bytes) -> BaseValue[KafkaPayload]:
    return Value(KafkaPayload(request.payload.key, value, []), request.committable, request.timestamp)


def main() -> None:
    """Run until killed."""
    task = Task.from_command_line()
    own = build_kafka_consumer_configuration({}, group_id=task.group, bootstrap_servers=[task.bootstrap])
    StreamProcessor(KafkaConsumer(own), Topic(task.requests), Steps(task), ONCE_PER_SECOND).run()


if __name__ == "__main__":
    main()
