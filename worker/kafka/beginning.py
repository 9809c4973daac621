"""Where a new assignment is read from, found without the client's wait for it.

Left to itself the client asks where the group stands, and looks for the beginning of partitions without an offset only
100 ms later, a fixed time of its own: the first answer of a new group came that much later (measured, 134 ms against
41 ms from the first poll to the first record; under both group protocols). So we ask in its place, in the callback of
the assignment, and say where to begin. Whatever the group does not tell in time is left to the client.
"""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException, TopicPartition

from worker.kafka.client_log import ClientLog
from worker.kafka.errors import words_of
from worker.settings import KafkaSettings

# The loop stands still meanwhile: no longer than what is saved. An answer took 2 ms (median) beside a busy broker.
ASK_TIMEOUT = 0.1

# `error` is missing: the client says it.
_RESETS = {"earliest": OFFSET_BEGINNING, "latest": OFFSET_END}


def begin_at_once(
    consumer: Consumer, assigned: Sequence[TopicPartition], kafka: KafkaSettings, log: ClientLog
) -> Sequence[TopicPartition]:
    """Assign these to the client at the group's offsets, or where the reset policy says. To be called in `on_assign`.

    Returns where they begin. Does nothing, and the client goes its own way, when that is not known, or when the
    assignment is not incremental: a strategy of the user's own may be another.
    """
    if not assigned or "partition.assignment.strategy" in kafka.config:
        return ()
    try:
        places = [_place(at, kafka) for at in consumer.committed(list(assigned), ASK_TIMEOUT)]
    except (KafkaException, RuntimeError):
        return ()
    try:
        consumer.incremental_assign(places)
    except (KafkaException, RuntimeError) as error:  # it is leaving, or broken, and then the next poll says so
        log.tell("assign", f"the client does not take {len(places)} partitions: {words_of(error)}")
    return places


def _place(at: TopicPartition, kafka: KafkaSettings) -> TopicPartition:
    if at.error is None and at.offset < 0:
        at.offset = _RESETS.get(kafka.auto_offset_reset, at.offset)
    return at
