"""Whether the cluster still has the topics that we are to read, and with how many partitions.

The client says little of a topic that is deleted, and nothing of partitions that no member of the group reads. A
KIP-848 group takes the partitions of a deleted topic away, as in any rebalance. A classic one leaves them: commits are
refused, and an error comes after 25 s (librdkafka 2.16, seen 2026-11). Where keys have states, they move away from
these when a topic gets partitions, as soon as its publishers know of it.

So the cluster is asked every few seconds, on a thread of its own and by a client that is kept for it: on the consumer's
connection an answer comes behind the fetch before it. It judges nothing: the group says what became of the records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from queue import Empty, Queue

from confluent_kafka import Consumer

from worker.kafka.client.errors import GONE
from worker.kafka.offsets.standings import in_background

LOOK_EVERY = 5.0  # seconds, without a reason
# While a topic is absent, and from the first sight of that to the second: a broker that has just started may not know
# of a topic yet.
LOOK_AGAIN_AFTER = 2.0
ASK_TIMEOUT = 5.0  # beside the loop: a handshake with a broker far away takes one or two


class RequestTopics:
    """Remembers which topics are absent, as last heard. Used by the loop's thread, once a second."""

    def __init__(
        self,
        topics: Sequence[str],
        new_client: Callable[[], Consumer],
        tell: Callable[[Collection[str], Collection[str]], object],
        counted: Callable[[Mapping[str, int]], object],
        clock: Callable[[], float],
    ) -> None:
        """`new_client` makes one that never joins the group.

        `tell` hears which are absent, and which are back, whenever that changes. `counted` hears with each look how
        many partitions they have, as far as the cluster says.
        """
        self._topics = topics
        self._new_client = new_client
        self._tell = tell
        self._counted = counted
        self._clock = clock
        self._client: Consumer | None = None
        self._look_at = clock() + LOOK_EVERY  # the start has just looked
        self._is_asking = False
        self._found: Queue[Mapping[str, int] | None] = Queue()
        self._missed: frozenset[str] = frozenset()  # by the last look
        self._absent: frozenset[str] = frozenset()  # by the last two

    def doubt(self) -> None:
        """Something says that one may be gone: look with the next `attend`."""
        self._look_at = self._clock()

    def attend(self) -> None:
        """Hear what was found, and look when it is time."""
        if self._is_asking:
            self._hear()
        if not self._is_asking and self._clock() >= self._look_at:
            self._is_asking = True
            in_background(self._ask, "request-topics")

    def close(self) -> None:
        if self._client is not None and not self._is_asking:
            self._client.close()

    def _hear(self) -> None:
        try:
            found = self._found.get_nowait()
        except Empty:
            return
        self._is_asking = False
        if found is None:
            self._look_at = self._clock() + LOOK_AGAIN_AFTER
            return
        self._counted(found)
        missed = frozenset(topic for topic, partitions in found.items() if not partitions)
        absent, self._missed = missed & self._missed, missed
        self._look_at = self._clock() + (LOOK_AGAIN_AFTER if missed else LOOK_EVERY)
        if absent != self._absent:
            back, self._absent = self._absent - absent, absent
            self._tell(absent, back)

    def _ask(self) -> None:
        """How many partitions they have, 0 for one that no broker knows; None where none tells."""
        client: Consumer | None = None
        try:
            client = self._client or self._new_client()
            counts = {topic: _partitions(client, topic) for topic in self._topics}
        except Exception:  # noqa: BLE001  # else no look would ever follow; the next one is another client's
            self._client = None
            if client is not None:
                client.close()
            self._found.put(None)
        else:
            self._client = client
            self._found.put({topic: count for topic, count in counts.items() if count is not None})


def _partitions(client: Consumer, topic: str) -> int | None:
    """How many the topic has, 0 where there is none of that name; None where the cluster does not say."""
    said = client.list_topics(topic, timeout=ASK_TIMEOUT).topics[topic]
    if said.error is None:
        return len(said.partitions) or None
    return 0 if said.error.code() in GONE else None
