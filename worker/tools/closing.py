"""What is closed at the end of a `with` block."""

from __future__ import annotations

from typing import Self


class Closing:
    """Has a `close`, and a `with` block calls it, however the block ends."""

    def close(self) -> object:
        """Let go of everything."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
