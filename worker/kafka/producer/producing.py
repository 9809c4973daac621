"""What every producer of answers does in the same way: where an answer goes, and what is told of it once a second."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError

from worker.core.failures import KafkaFatal
from worker.kafka.client.errors import GONE
from worker.kafka.client.log import ClientLog
from worker.kafka.client.statistics import Watcher
from worker.kafka.producer.outstanding import Outstanding

ANY_PARTITION = -1  # the partitioner's choice


def partition_of(topic: str, key: bytes | None, source: int, partitions: Mapping[str, int]) -> int:
    """The partition that a message goes to; `partitions` counts those of each topic, `source` is the request's own.

    An empty key goes by the request's partition too: not every client counts it as a key, order holds either way.
    """
    return ANY_PARTITION if key else source % partitions[topic]


def is_too_large(error: KafkaError) -> bool:
    """Whether it was refused for its size: nothing is sent that is too large for the limit we know."""
    return bool(error.code() == KafkaError.MSG_SIZE_TOO_LARGE)


def why_refused(topic: str | None, error: KafkaError) -> str:
    """Why a message for this topic will never be durable. The client refuses a topic not found for half a minute."""
    if error.code() in GONE:
        return f"topic {topic} was deleted, or made anew with fewer partitions: {error.str()}"
    if is_too_large(error):
        return (
            f"the broker refused a record for topic {topic} as too large: its max.message.bytes was lowered, or "
            "WORKER_KAFKA__MAX_MESSAGE_BYTES is more than it takes"
        )
    return f"the broker refused a record for topic {topic}: {error.str()}"


def broken(error: Exception) -> KafkaFatal:
    """A broken producer raises a `SystemError` around the `KafkaException` that has the reason (measured)."""
    return KafkaFatal(f"the producer failed: {error.__cause__ or error}; start again")


def tell(watcher: Watcher | None, log: ClientLog, outstanding: Outstanding, statistics: str) -> None:
    """Tell the watcher, and log topics that take nothing, of which the client itself says nothing.

    Raises nothing, whatever the text holds: no answer should be lost for a number on a page.
    """
    if watcher is None:
        return
    try:
        seen = outstanding.read(statistics)
        watcher.producer_seen(seen.connections, seen.undelivered)
    except Exception as error:  # noqa: BLE001  # see above
        log.tell("statistics", f"the producer's statistics are not understood: {error!r}")
    else:
        for topic, partitions in seen.refusing.items():
            log.tell(
                f"refusing {topic}",
                f"topic {topic} takes nothing of what is sent to {partitions} of its partitions again and again; up to "
                f"{seen.undelivered[topic]} messages wait for it; has it as many in-sync replicas as its "
                "min.insync.replicas asks for? kafka-topics.sh --describe --under-min-isr-partitions",
            )
