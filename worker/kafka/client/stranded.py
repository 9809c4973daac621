"""When only a new start helps a client: it has lost all its brokers while they answer others, or its login was changed.

librdkafka 2.16 lets go of all brokers that it knows when one that is just starting answers that there is none
(librdkafka #5301), and may then connect to none for as long as it runs: `tests/kafka/test_stranded.py` makes it so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException

_REFUSED = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})  # noqa: SLF001 - librdkafka's own codes begin so

# A client that has no broker left takes the first ones again, within milliseconds.
LOST_AFTER = 5.0
ASK_AGAIN_AFTER = 15.0
ASK_TIMEOUT = 2.0  # the loop waits for it, with nothing to read or to send


class Stranded:
    """Hears once a second how many brokers one client knows. Owns since when it knows none."""

    def __init__(self, whose: str, new_client: Callable[[], Consumer], clock: Callable[[], float]) -> None:
        """`new_client` makes one that has to connect first, as a new start would."""
        self._whose = whose
        self._new_client = new_client
        self._clock = clock
        self._lost_at: float | None = None
        self._ask_at = 0.0

    def why(self, brokers: int) -> str | None:
        """Why to start again, given the number of known brokers; None: it would help nothing."""
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
    """Passwords, keys and certificates in files, as they were at the start. The client never reads them again."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._files = {file: _written_at(file) for file in files}

    def why_refused(self, error: KafkaError) -> str | None:
        """Why to start again when a login is refused; None where no file has changed, or one is being replaced."""
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
