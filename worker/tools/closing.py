"""A base class for objects that a `with` block closes."""

from __future__ import annotations

from typing import Self


class Closing:
    """An object whose `close` a `with` block calls, however the block ends."""

    def close(self) -> object:
        """Release everything that the object holds."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
