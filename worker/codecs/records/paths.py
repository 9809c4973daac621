"""Paths: the fields of a record that a mapping names, such as `amount`, `customer.country` and `items[*].price`.

A path that begins with `$` names something of the Kafka record and not of its value: `$key`, `$timestamp`, `$topic`,
`$headers.name`, and `$value` where the whole value is a text or bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from worker.core.failures import BadConfiguration

EACH = "*"  # a step to each element of an array
HEADERS = "$headers"
TIMESTAMP = "$timestamp"
OF_RECORD = ("$key", TIMESTAMP, "$topic", "$value")
_EACH = f"[{EACH}]"


class Path(NamedTuple):
    """The steps to a field: names, and `EACH`; prints as it is written in a mapping."""

    steps: tuple[str, ...]

    @property
    def is_of_record(self) -> bool:
        """True for something of the Kafka record around the value."""
        return self.steps[:1] != () and self.steps[0].startswith("$")

    @property
    def has_each(self) -> bool:
        return EACH in self.steps

    @property
    def name(self) -> str:
        """The last name."""
        return next(step for step in reversed(self.steps) if step != EACH)

    def below(self, other: Path) -> bool:
        """True if this path is the other one, or goes on from it."""
        return self.steps[: len(other.steps)] == other.steps

    def __str__(self) -> str:
        return "".join([_EACH if step == EACH else f".{step}" for step in self.steps]).removeprefix(".")


WHOLE = Path(())  # the record itself
VALUE = Path(("$value",))


def path_of(entry: str, given: object) -> Path:
    """The path that a setting gives: a text, or a list of names where a name has a dot in it.

    Raises `BadConfiguration`; `entry` names the setting.
    """
    if isinstance(given, list | tuple) and given and all(isinstance(name, str) and name for name in given):
        return Path(tuple(given))
    if not isinstance(given, str) or not given:
        raise BadConfiguration(f'{entry}: expected the path of a field, such as "customer.country"')
    if given.startswith("$"):
        return _of_record(entry, given)
    steps: list[str] = []
    for part in given.split("."):
        name = part.removesuffix(_EACH)
        if not name or "[" in name or "]" in name:
            raise BadConfiguration(f"{entry}: {given!r} is no path; write name.name, and name[*].name for an array's")
        steps += [name, EACH] if name != part else [name]
    if steps.count(EACH) > 1:
        raise BadConfiguration(f"{entry}: {given!r} goes through two arrays, and one is possible")
    return Path(tuple(steps))


def _of_record(entry: str, given: str) -> Path:
    head, _, name = given.partition(".")
    if given in OF_RECORD:
        return Path((given,))
    if head == HEADERS and name:
        return Path((HEADERS, name.lower()))
    raise BadConfiguration(
        f"{entry}: {given!r} is no field of a Kafka record; {_listed([*OF_RECORD, '$headers.name'])} are"
    )


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
