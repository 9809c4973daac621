"""Whether the files by which we log in have changed since they were read: passwords, keys, certificates.

They are read once, by the settings and by the client. After a rotation a worker would try the old login for ever, with
no connection, while the new one lies beside it. One that ends is started again, and reads them.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from confluent_kafka import KafkaError


class LoginFiles:
    """Remembers what the files held when it was made, as digests. A folder of certificates is not looked at."""

    def __init__(self, secrets: Iterable[Path], certificates: Iterable[Path]) -> None:
        self._secrets = {file: _digest(file) for file in secrets}
        self._certificates = {file: _digest(file) for file in certificates}

    def why_refused(self, error: KafkaError) -> str | None:
        """What to tell when a login is refused that another one could replace; None where a new start changes nothing.

        A file that is gone, or empty, is being replaced.
        """
        if error.code() == KafkaError._AUTHENTICATION:  # noqa: SLF001 - librdkafka's own codes begin so
            files = self._secrets
        elif error.code() == KafkaError._SSL:  # noqa: SLF001 - likewise
            files = self._certificates | self._secrets  # one of which may open our key
        else:
            return None
        changed = [str(file) for file, held in files.items() if (now := _digest(file)) is not None and now != held]
        if not changed:
            return None
        return (
            f"our login is not taken any more, and {' and '.join(changed)} changed since this worker started: "
            f"start again, to log in with what is there now. The client says: {error.str()}"
        )


def _digest(file: Path) -> bytes | None:
    try:
        content = file.read_bytes()
    except OSError:
        return None
    return sha256(content).digest() if content else None
