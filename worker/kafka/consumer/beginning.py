"""Where a new assignment is read from, found without the client's wait for it.

Left to itself the client asks where the group stands, and looks for the beginning of partitions without an offset only
100 ms later, a fixed time of its own: the first answer of a new group came that much later (measured, 134 ms against
41 ms from the first poll to the first record; under both group protocols). So we ask in its place, in the callback of
the assignment, and say where to begin.

What the group does not tell at once is asked again for a while. Left to the client it might never be told: a question
of its own that meets a coordinator that has moved (NOT_COORDINATOR) is not asked again, and the partitions stand still
for ever (librdkafka 2.16, both group protocols). After that the client begins by itself: under `earliest` at the
beginning, whence it is moved once something has come (`gates.py`); under `latest` and `error` nothing may ever come, so
it is left to the client after all.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, Consumer, KafkaException, TopicPartition

from worker.kafka.client.errors import words_of
from worker.kafka.client.log import ClientLog
from worker.settings import KafkaSettings

# The loop stands still meanwhile. An answer took 2 ms (median) beside a busy broker. A coordinator that has moved says
# so in 0.3 ms, and is found anew while we wait. Behind a network that takes 0.1 s in each direction, who gave up after
# 0.1 s read what all partitions began with, and had the first record after 1.7 s instead of 0.6 (measured). While the
# transaction of a dead replica is open the group does not tell at all.
PATIENCE: Mapping[str, float] = {"earliest": 0.5, "latest": 2.0, "error": 2.0}
ASK_AGAIN_AFTER = 0.1

# `error` is missing: the client says it, and then asks for itself.
_RESETS = {"earliest": OFFSET_BEGINNING, "latest": OFFSET_END}


class Beginning(NamedTuple):
    """The partitions of an assignment that begin where they should, and those of which the group did not tell where."""

    known: Sequence[TopicPartition] = ()
    unknown: Sequence[TopicPartition] = ()


def begin_at_once(
    consumer: Consumer, assigned: Sequence[TopicPartition], kafka: KafkaSettings, log: ClientLog
) -> Beginning:
    """Assign these to the client at the group's offsets, or where the reset policy says. To be called in `on_assign`.

    The unknown ones are assigned at their beginning, and are to be moved before anything of them is used. Does nothing,
    and the client goes its own way, when the assignment is not incremental: a strategy of the user's own may be
    another.
    """
    if not assigned or "partition.assignment.strategy" in kafka.config:
        return Beginning()
    begins_meanwhile = kafka.auto_offset_reset == "earliest"
    try:
        known, unknown = _ask_for_a_while(consumer, assigned, PATIENCE[kafka.auto_offset_reset])
        for at in known:
            if at.offset < 0:
                at.offset = _RESETS.get(kafka.auto_offset_reset, OFFSET_INVALID)
        for at in unknown:
            at.offset = OFFSET_BEGINNING if begins_meanwhile else OFFSET_INVALID
        consumer.incremental_assign([*known, *unknown])
    except (KafkaException, RuntimeError) as error:  # it is leaving, or broken, and then the next poll says so
        log.tell("assign", f"the client does not take {len(assigned)} partitions: {words_of(error)}")
        return Beginning()
    if unknown and not begins_meanwhile:
        some = f"{len(unknown)} of {len(assigned)} partitions"
        log.tell("committed", f"the group does not tell its offsets: {some} are left to the client")
    return Beginning(known, unknown if begins_meanwhile else ())


def _ask_for_a_while(consumer: Consumer, assigned: Sequence[TopicPartition], patience: float) -> Beginning:
    """What the group tells of them. Raises `RuntimeError` when the consumer is closed."""
    give_up_at = time.monotonic() + patience
    while True:
        beginning = _ask(consumer, assigned, max(ASK_AGAIN_AFTER, give_up_at - time.monotonic()))
        if not beginning.unknown or time.monotonic() + ASK_AGAIN_AFTER >= give_up_at:
            return beginning
        time.sleep(ASK_AGAIN_AFTER)


def _ask(consumer: Consumer, assigned: Sequence[TopicPartition], timeout: float) -> Beginning:
    try:
        found = consumer.committed(list(assigned), timeout)
    except KafkaException:
        return Beginning((), list(assigned))
    return Beginning([at for at in found if at.error is None], [at for at in found if at.error is not None])
