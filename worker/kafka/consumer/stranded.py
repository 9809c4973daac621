"""Whether the consumer stays without a connection while the brokers answer others: then only a new start helps.

Seen twice (2026-11, librdkafka 2.16): after a broker's restart a consumer tried no connection for as long as it ran,
with its coordinator alone in its statistics. With `metadata.recovery.strategy=none` it was half of all consumers.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException

# A client tries again after 10 s at most (`reconnect.backoff.max.ms`).
STRANDED_AFTER, ASK_AGAIN_AFTER = 45.0, 15.0
ASK_TIMEOUT = 2.0  # the loop waits for it, with nothing to read


class Stranded:
    """Hears once a second how many connections there are. Owns since when there is none."""

    def __init__(self, new_client: Callable[[], Consumer], clock: Callable[[], float] = time.monotonic) -> None:
        """`new_client` makes one that has to connect first, as a new start would."""
        self._new_client = new_client
        self._clock = clock
        self._cut_off_at: float | None = None
        self._ask_at = 0.0

    def why(self, connections: int) -> str | None:
        """Why to start again, given the connections that are open; None: that would help nothing."""
        now = self._clock()
        if connections:
            self._cut_off_at = None
            return None
        if self._cut_off_at is None:
            self._cut_off_at, self._ask_at = now, now + STRANDED_AFTER
        if now < self._ask_at:
            return None
        self._ask_at = now + ASK_AGAIN_AFTER
        if not self._do_brokers_answer():
            return None
        return f"the consumer has had no connection for {now - self._cut_off_at:.0f} s, and a new one has it at once"

    def _do_brokers_answer(self) -> bool:
        client = self._new_client()
        try:
            client.list_topics(timeout=ASK_TIMEOUT)
        except KafkaException:
            return False
        finally:
            client.close()
        return True
