"""Remembers what publishers' records say, within bounds, so that no publisher can fill the memory."""

from __future__ import annotations

from typing import TypeVar

Key = TypeVar("Key")
Found = TypeVar("Found")

MOST = 4096  # statements or layouts: many more than publishers use at once
_MOST_BYTES = 4 * 1024 * 1024  # of publishers, in one `Known`


class Known(dict[Key, Found]):
    """At most `most` things that were learned. With one more all are forgotten, so that no rare one stays.

    Common ones are soon learned again.
    """

    def __init__(self, most: int = MOST) -> None:
        super().__init__()
        self._most = most
        self._held = 0

    def learn(self, key: Key, found: Found, size: int = 0) -> None:
        """Keep `found`, which holds `size` bytes of its publisher's; a large one is not kept."""
        if size > _MOST_BYTES // 4:
            return
        if len(self) >= self._most or self._held + size > _MOST_BYTES:
            self.clear()
            self._held = 0
        self[key] = found
        self._held += size
