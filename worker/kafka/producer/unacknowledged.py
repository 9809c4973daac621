"""Which topics owe a producer acknowledgements, by what its client says once a second.

librdkafka counts a message in its partition while it waits for company, to be sent, or for its acknowledgement. One
that was refused and waits to be sent again is counted in no partition (2.16; 119 of 119 on a topic below its
`min.insync.replicas`), only in the number of all messages. Which partition such messages belong to shows in how its own
numbers change:

    acknowledged does not grow, and sent does   the partition stands still: the messages counted nowhere may be its
    or some are counted                         own
    acknowledged grows                          it takes messages again

Reads one text after another, in the thread that polls the client; asks no broker.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from worker.core.records import Partition
from worker.kafka.client.log import ClientLog
from worker.kafka.client.statistics import (
    ClientWatcher,
    brokers_of,
    connections_of,
    partitions_of,
    tell_throttled,
    throttled_of,
)

# In so many texts must a partition be sent again in vain before that is logged. They come once a second, and the client
# tries again once a second at least: a leader that moves takes less.
_VAIN_TEXTS = 4


class ProducerStatistics(NamedTuple):
    """`undelivered` counts, for each topic, the messages that no broker has acknowledged.

    `refusing` has the topics that were sent theirs again just now, as in the seconds before, and took none; with how
    many of their partitions do so.
    """

    connections: int
    undelivered: Mapping[str, int]
    refusing: Mapping[str, int]
    brokers: int  # that are known
    outstanding: int  # messages, of all topics
    throttled: float  # seconds of the last one


class _Seen(NamedTuple):
    """A partition, in one text. `is_standing` until it acknowledges something; `vain_texts` counts, too."""

    sent: int = 0
    acknowledged: int = 0
    is_standing: bool = False
    vain_texts: int = 0


class Unacknowledged:
    """What one producer waits for, or one after the other. Owns what is remembered from text to text.

    The client does not say how the messages counted nowhere are split between several topics that stand still: each is
    said to have them all.

    A transaction's producer gives up what it could not send in time, and another one takes its place, which has nothing
    to send before the brokers have taken the transaction back. For as long as they let it wait, what was given up
    counts.
    """

    def __init__(self) -> None:
        self._client: str | None = None
        self._partitions: dict[Partition, _Seen] = {}
        self._waiting: Mapping[str, int] = {}  # the topics that stand
        self._given_up: dict[str, int] = {}

    def tell(self, watcher: ClientWatcher | None, log: ClientLog, text: str) -> ProducerStatistics | None:
        """Tell the watcher what the producer said, and log topics that take nothing: the client itself is silent.

        Returns it; None without a watcher, and for a text that is not understood. Raises nothing, whatever the text
        holds: no answer should be lost for a number on a page.
        """
        if watcher is None:
            return None
        try:
            seen = self.read(text)
            watcher.producer_seen(seen.connections, seen.undelivered)
            tell_throttled(watcher, log, "producer", seen.throttled)
        except Exception as error:  # noqa: BLE001  # see above
            log.tell("statistics", f"the producer's statistics are not understood: {error!r}")
            return None
        for topic, partitions in seen.refusing.items():
            log.tell(
                f"refusing {topic}",
                f"topic {topic} takes nothing of what is sent to {partitions} of its partitions again and again; up to "
                f"{seen.undelivered[topic]} messages wait for it; has it as many in-sync replicas as its "
                "min.insync.replicas asks for? kafka-topics.sh --describe --under-min-isr-partitions; or is a message "
                "larger than the broker's socket.request.max.bytes?",
            )
        return seen

    def read(self, text: str) -> ProducerStatistics:
        """What the producer said, in the light of what it said before."""
        said = json.loads(text)
        self._meet(said.get("name", ""))
        found = partitions_of(said)
        counted = {topic: sum(map(_counted, numbers.values())) for topic, numbers in found.items()}
        outstanding = said.get("msg_cnt", 0)
        hidden = max(0, outstanding - sum(counted.values()))
        before = self._partitions
        self._partitions = {
            (at := Partition(topic, int(number))): self._seen(at, one, hidden)
            for topic, numbers in found.items()
            for number, one in numbers.items()
        }
        if not outstanding:
            self._give_up()
        standing = self._standing()
        self._waiting = {topic: counted[topic] + hidden for topic in standing}
        undelivered = {
            topic: self._waiting.get(topic, counted.get(topic, 0)) + self._given_up.get(topic, 0)
            for topic in {**counted, **self._given_up}
        }
        connections = connections_of(said)
        refusing = self._refusing(before) if connections else {}
        throttled = throttled_of(said)
        return ProducerStatistics(connections, undelivered, refusing, brokers_of(said), outstanding, throttled)

    def forget(self) -> None:
        """The transaction has ended: what is left of it is not waited for any more."""
        self._given_up.clear()
        self._let_stand()

    def _meet(self, client: str) -> None:
        """Another client has sent nothing yet."""
        if client != self._client:
            self._give_up()
            self._client, self._partitions = client, {}

    def _seen(self, at: Partition, found: Mapping[str, Any], hidden: int) -> _Seen:
        before = self._partitions.get(at, _Seen())
        sent, acknowledged = found["txmsgs"], found["acked_msgid"]
        if acknowledged != before.acknowledged:
            self._given_up.pop(at.topic, None)
            return _Seen(sent, acknowledged)
        is_sent = sent > before.sent
        is_standing = before.is_standing or is_sent or _counted(found) > 0
        return _Seen(sent, acknowledged, is_standing, before.vain_texts + (is_sent and hidden > 0))

    def _refusing(self, before: Mapping[Partition, _Seen]) -> dict[str, int]:
        refusing: dict[str, int] = {}
        for at, seen in self._partitions.items():
            if seen.vain_texts >= _VAIN_TEXTS and seen.vain_texts > before.get(at, _Seen()).vain_texts:
                refusing[at.topic] = refusing.get(at.topic, 0) + 1
        return refusing

    def _give_up(self) -> None:
        """The client has let go of what it had. Nothing where all was acknowledged, as without transactions always."""
        standing = self._standing()
        self._given_up |= {topic: count for topic, count in self._waiting.items() if topic in standing}
        self._let_stand()

    def _let_stand(self) -> None:
        self._partitions = {at: _Seen(seen.sent, seen.acknowledged) for at, seen in self._partitions.items()}
        self._waiting = {}

    def _standing(self) -> set[str]:
        return {at.topic for at, seen in self._partitions.items() if seen.is_standing}

    def __repr__(self) -> str:
        return f"<Unacknowledged of {self._client} waiting={self._waiting} given_up={self._given_up}>"


def _counted(found: Mapping[str, Any]) -> int:
    counted: int = found["msgq_cnt"] + found["xmit_msgq_cnt"] + found["msgs_inflight"]
    return counted
