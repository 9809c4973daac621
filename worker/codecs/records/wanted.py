"""The common parts of the readers of schemas: the wanted fields, errors by path, and a limit on what is built.

The wanted fields below a place are a set of paths, each a tuple of names; the step `*` goes to each item of an array.
The empty path means all that stands there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

EACH = "*"
Why = Callable[[Exception], str]
Wanted = frozenset[tuple[str, ...]]
WHOLE: Wanted = frozenset({()})

# Values in the arrays and maps of one record, without numbers that are read at once. A MiB can hold a million of one
# byte each, which take 0.3 s, and 160 MB as records in records. A hundred thousand take 0.05 s and 20 MB (2026-11).
MOST_VALUES = 100_000
_SHOWN_STEPS = 8


def wanted_of(paths: Collection[tuple[str, ...]] | None) -> Wanted:
    """The paths as a set; None means the whole record."""
    return WHOLE if paths is None else frozenset(paths)


def is_whole(wanted: Wanted) -> bool:
    return () in wanted


def below(wanted: Wanted, step: str) -> Wanted:
    """The wanted paths below the field of this name; none if the field is not wanted."""
    further = frozenset([path[1:] for path in wanted if path and path[0] == step])
    return further | WHOLE if is_whole(wanted) else further


def below_each(wanted: Wanted) -> Wanted:
    """The wanted paths in each item of an array: the whole item, unless a path goes through the items."""
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
    """Counts the values in one record. It may claim any number of them, also of ones that take no bytes."""

    def __init__(self) -> None:
        self._left = MOST_VALUES

    def renew(self) -> None:
        self._left = MOST_VALUES

    def take(self, values: int) -> None:
        """Raises `Unreadable`."""
        self._left -= values
        if self._left < 0:
            raise Unreadable(f"expected at most {MOST_VALUES:,} values in the arrays and maps of a record")


def unreadable(error: Exception, why: Why) -> Unreadable:
    """The error as one of a value; `why` tells the reason of one that is no `Unreadable` yet."""
    return error if isinstance(error, Unreadable) else Unreadable(why(error))


def within(step: str, error: Exception, why: Why) -> Unreadable:
    """The error, seen from one step above."""
    wrong = unreadable(error, why)
    wrong.steps.append(step)
    return wrong
