"""Clients that only a new start helps: they have lost all brokers, which answer others, or their login was changed.

librdkafka 2.16 forgets all its brokers when a broker that is just starting answers that there are none (librdkafka
#5301). It may then never connect again for as long as it runs: `tests/kafka/test_stranded.py` reproduces this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException

_REFUSED = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})  # noqa: SLF001 - librdkafka's own codes begin so

# A client without brokers normally goes back to the bootstrap addresses within milliseconds.
LOST_AFTER = 5.0
ASK_AGAIN_AFTER = 15.0
ASK_TIMEOUT = 2.0  # the loop waits meanwhile, with nothing to read or to send


class Stranded:
    """Watches, once a second, how many brokers one client knows. Owns the time since when it knows none."""

    def __init__(self, whose: str, new_client: Callable[[], Consumer], clock: Callable[[], float]) -> None:
        """`new_client` makes a client that has to connect first, as after a new start."""
        self._whose = whose
        self._new_client = new_client
        self._clock = clock
        self._lost_at: float | None = None
        self._ask_at = 0.0

    def why(self, brokers: int) -> str | None:
        """The reason to start again, given the number of known brokers; None if a new start would not help."""
        now = self._clock()
        if brokers:
            self._lost_at = None
            return None
        if self._lost_at is None:
            self._lost_at = now
        lost_for = now - self._lost_at
        if lost_for < LOST_AFTER or now < self._ask_at:
            return None
        self._ask_at = now + ASK_AGAIN_AFTER
        if not self._do_brokers_answer():
            return None
        return f"the {self._whose} has known no broker for {lost_for:.0f} s, and a new client is answered at once"

    def _do_brokers_answer(self) -> bool:
        try:
            client = self._new_client()
        except KafkaException:  # a certificate that is gone, or just being replaced: a new start would fail, too
            return False
        try:
            client.list_topics(timeout=ASK_TIMEOUT)
        except KafkaException:
            return False
        finally:
            client.close()
        return True


class LoginFiles:
    """The files of passwords, keys and certificates, as they were at the start. The client never reads them again."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._files = {file: _written_at(file) for file in files}

    def why_refused(self, error: KafkaError) -> str | None:
        """The reason to start again after a refused login; None if no file has changed, or one is being replaced."""
        if error.code() not in _REFUSED:
            return None
        changed = [
            f"{file}" for file, at in self._files.items() if (now := _written_at(file)) is not None and now != at
        ]
        if not changed:
            return None
        return (
            f"our login is not taken any more, and {' and '.join(changed)} changed since this worker started: "
            f"start again, to log in with what is there now. The client says: {error.str()}"
        )


def _written_at(file: Path) -> int | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns if found.st_size else None
