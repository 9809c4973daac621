"""Where a new assignment is read from, found without the client's wait for it.

Left to itself the client asks where the group stands, and looks for the beginning of partitions without an offset only
100 ms later, a fixed time of its own: the first answer of a new group came that much later (measured, 134 ms against
41 ms from the first poll to the first record; under both group protocols). So we ask in its place, in the callback of
the assignment, and say where to begin.

What the group does not tell in time is asked again. Left to the client it might never be told: a question of its own
that meets a coordinator that has moved (NOT_COORDINATOR) is not asked again, and the partitions stand still for ever
(librdkafka 2.16, both group protocols). Under `earliest` the client begins meanwhile, and is moved once something has
come (`gates.py`). Under `latest` and `error` nothing may ever come, so we ask here, for a while.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, Consumer, KafkaException, TopicPartition

from worker.kafka.client_log import ClientLog
from worker.kafka.errors import words_of
from worker.settings import KafkaSettings

# The loop stands still meanwhile: no longer than what is saved. An answer took 2 ms (median) beside a busy broker.
ASK_TIMEOUT = 0.1

# Where nothing is read before the group's offset is known, it is asked for again here, two seconds at most. What is
# unknown then is the client's after all. A coordinator that has moved says so in 0.3 ms (measured), and is found anew
# while we wait.
MOST_ASKS = 11
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
    known, unknown = _ask(consumer, assigned) if begins_meanwhile else _ask_for_a_while(consumer, assigned)
    for at in known:
        if at.offset < 0:
            at.offset = _RESETS.get(kafka.auto_offset_reset, OFFSET_INVALID)
    if unknown and not begins_meanwhile:
        some = f"{len(unknown)} of {len(assigned)} partitions"
        log.tell("committed", f"the group does not tell its offsets: {some} are left to the client")
    for at in unknown:
        at.offset = OFFSET_BEGINNING if begins_meanwhile else OFFSET_INVALID
    try:
        consumer.incremental_assign([*known, *unknown])
    except (KafkaException, RuntimeError) as error:  # it is leaving, or broken, and then the next poll says so
        log.tell("assign", f"the client does not take {len(assigned)} partitions: {words_of(error)}")
    return Beginning(known, unknown if begins_meanwhile else ())


def _ask_for_a_while(consumer: Consumer, assigned: Sequence[TopicPartition]) -> Beginning:
    beginning = _ask(consumer, assigned)
    for _ in range(MOST_ASKS - 1):
        if not beginning.unknown:
            break
        time.sleep(ASK_AGAIN_AFTER)
        beginning = _ask(consumer, assigned)
    return beginning


def _ask(consumer: Consumer, assigned: Sequence[TopicPartition]) -> Beginning:
    """What the group tells of them now."""
    try:
        found = consumer.committed(list(assigned), ASK_TIMEOUT)
    except (KafkaException, RuntimeError):
        return Beginning((), list(assigned))
    return Beginning([at for at in found if at.error is None], [at for at in found if at.error is not None])
