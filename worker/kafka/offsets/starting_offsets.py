"""Where a new assignment is read from, found without the client's wait for it.

Left to itself the client asks where the group stands, and looks for the beginning of partitions without an offset only
100 ms later, a fixed time of its own: the first answer of a new group came that much later (measured 2026, 134 ms
against 41 ms from the first poll to the first record; under both group protocols). So we ask in its place, in the
callback of the assignment, and say where to begin.

What the group does not say at once is asked again for a while. The client may never learn it: its own question, when it
meets a coordinator that has moved (NOT_COORDINATOR), is not asked again, and the partitions stand still for ever
(librdkafka 2.16, both group protocols). After that the client begins by itself: under `earliest` at the beginning, and
it is moved once something has come (`gates.py`); under `latest` and `error` nothing may ever come, so it is left to the
client after all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, Consumer, KafkaException, TopicPartition

from worker.kafka.client.errors import words_of
from worker.kafka.client.log import ClientLog
from worker.kafka.offsets.standing_lookup import AssignmentStandings, StandingLookup
from worker.settings import KafkaSettings

# The loop stands still meanwhile. An answer took 2 ms (median) beside a busy broker. Behind a network that takes 0.1 s
# in each direction, a worker that gave up after 0.1 s read what all partitions began with, and had the first record
# after 1.7 s instead of 0.6 (measured 2026). While the transaction of a dead replica is open the group does not tell.
PATIENCE: Mapping[str, float] = {"earliest": 0.5, "latest": 2.0, "error": 2.0}

# `error` is missing: the client says it, and then asks for itself.
_RESETS = {"earliest": OFFSET_BEGINNING, "latest": OFFSET_END}


def begin_at_once(
    consumer: Consumer,
    assigned: Sequence[TopicPartition],
    standings: StandingLookup,
    kafka: KafkaSettings,
    log: ClientLog,
) -> AssignmentStandings:
    """Assign these to the client at the group's offsets, or where the reset policy says. To be called in `on_assign`.

    The unknown ones are assigned at their beginning, and are to be moved before anything of them is used. Does nothing,
    and the client goes its own way, when the assignment is not incremental: a strategy of the user's own may be
    another.
    """
    if not assigned or "partition.assignment.strategy" in kafka.config:
        return AssignmentStandings()
    begins_meanwhile = kafka.auto_offset_reset == "earliest"
    try:
        known, unknown = standings.now(assigned, PATIENCE[kafka.auto_offset_reset])
        for at in known:
            if at.offset < 0:
                at.offset = _RESETS.get(kafka.auto_offset_reset, OFFSET_INVALID)
        for at in unknown:
            at.offset = OFFSET_BEGINNING if begins_meanwhile else OFFSET_INVALID
        consumer.incremental_assign([*known, *unknown])
    except (KafkaException, RuntimeError) as error:  # it is leaving, or broken, and then the next poll says so
        log.tell("assign", f"the client does not take {len(assigned)} partitions: {words_of(error)}")
        return AssignmentStandings()
    if unknown and not begins_meanwhile:
        some = f"{len(unknown)} of {len(assigned)} partitions"
        log.tell("committed", f"the group does not tell its offsets: {some} are left to the client")
    return AssignmentStandings(known, unknown if begins_meanwhile else ())
