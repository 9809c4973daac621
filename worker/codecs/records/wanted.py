"""What the readers of schemas have in common: the wanted fields, the errors by path, and a limit on what is built.

The wanted fields below a place are a set of paths, each a tuple of names; the step `*` goes to each item of an array.
The empty path means all that stands there.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

EACH = "*"
Wanted = frozenset[tuple[str, ...]]
WHOLE: Wanted = frozenset({()})

# Items in the arrays and maps of one record, without numbers of a fixed size, which are read at once. A MiB can hold a
# million items of one byte each. As records they take 200 bytes and up to 1 µs each, so these take 20 MB, 0.1 s.
MOST_ITEMS = 100_000
_SHOWN_STEPS = 8


def wanted_of(paths: Collection[tuple[str, ...]] | None) -> Wanted:
    """The paths as a set; None means the whole record."""
    return WHOLE if paths is None else frozenset(paths)


def is_whole(wanted: Wanted) -> bool:
    return () in wanted


def below(wanted: Wanted, step: str) -> Wanted:
    """What is wanted below the field of this name; nothing if the field is not wanted."""
    further = frozenset([path[1:] for path in wanted if path and path[0] == step])
    return further | WHOLE if is_whole(wanted) else further


def below_each(wanted: Wanted) -> Wanted:
    """What is wanted of each item of an array: all of it, unless a path goes through the items."""
    return below(wanted, EACH) or WHOLE


class Unreadable(Exception):
    """A value is not of its schema. `steps` lead to it, the last one first."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
        self.steps: list[str] = []

    def __str__(self) -> str:
        steps = self.steps[::-1]
        path = "".join(steps[:_SHOWN_STEPS]) + ("…" if len(steps) > _SHOWN_STEPS else "")
        return f"{path.removeprefix('.') or 'the record'}: {self.why}"


class Budget:
    """Counts the items of one record. A value may claim any number of them, also of items that take no bytes."""

    def __init__(self) -> None:
        self._left = MOST_ITEMS

    def renew(self) -> None:
        self._left = MOST_ITEMS

    def take(self, items: int) -> None:
        """Raises `Unreadable`."""
        self._left -= items
        if self._left < 0:
            raise Unreadable(f"expected at most {MOST_ITEMS:,} items in the arrays and maps of a record")


def within(step: str, error: Exception, why: Any) -> Unreadable:
    """The error, seen from one step above. `why` tells the reason of an error that is no `Unreadable` yet."""
    if not isinstance(error, Unreadable):
        error = Unreadable(why(error))
    error.steps.append(step)
    return error
