"""`inference-worker dead-letters list` and `show`: the reasons of rejections, in groups, and single letters whole.

A record reaches the terminal as visible characters only: an escape sequence is shown, not obeyed.
"""

from __future__ import annotations

import heapq
import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import groupby

from rich.console import Console

from worker.codecs.dead_letters import Letter, Position
from worker.core.failures import BadConfiguration
from worker.kafka.reader import Reader
from worker.terminal.terminal import console, count, print_json, printable, say
from worker.tools.consume.shown import envelope, moment
from worker.tools.dead_letters.letters import filter_of, letter_at, letters, request_topic, topic_of
from worker.tools.dead_letters.options import ListLettersOrder, ShowOrder

# The number of reasons kept apart, so that memory does not grow with the topic. All further reasons share one entry.
MOST_REASONS = 500
OTHERS = "(other messages)"

# Numbers that stand alone, as in [1, 64] and "char 17", but not in names such as FP32 and x2. Then hexadecimal ids.
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?!\w|\.\d)|\b(?=[0-9a-f-]*\d)[0-9a-f-]{8,}\b")
_MESSAGE_READ, _MESSAGE_SHOWN = 1024, 300  # characters; the search for numbers takes time with the square of the first


@dataclass(slots=True)
class Reason:
    """Letters with one reason. Times are in milliseconds since the epoch, None while no letter has one."""

    code: str
    message: str
    request_topic: str
    example: str
    count: int = 0
    first_ms: int | None = None
    last_ms: int | None = None

    def add(self, letter: Letter) -> None:
        self.count += 1
        times = [ms for ms in (self.first_ms, self.last_ms, letter.record.timestamp_ms) if ms is not None]
        self.first_ms, self.last_ms = min(times, default=None), max(times, default=None)


def show_reasons(order: ListLettersOrder) -> int:
    """List the reasons. Returns 0. Raises `Stop` if the topic cannot be read, `Incomplete` if a part of it cannot."""
    kafka, topic = topic_of(order)
    wanted = filter_of(order)
    with Reader(kafka, topic) as reader:
        found = reasons(filter(wanted.takes, letters(reader, wanted.starts(reader), topic)))
        if order.as_json:
            for reason in found:
                print_json(asdict(reason))
        else:
            show(console(), topic, found)
        reader.expect_whole()
    return 0


def reasons(found: Iterable[Letter]) -> list[Reason]:
    """Makes one entry for each code, message (without its numbers) and request topic. The commonest code comes first,
    then the commonest message, then the oldest, because partitions are read in no order.
    """
    kept: dict[tuple[str, str, str], Reason] = {}
    for letter in found:
        key = (letter.code, blurred(letter.message), request_topic(letter))
        if key not in kept and len(kept) >= MOST_REASONS:
            key = (OTHERS, OTHERS, "")
        if key not in kept:
            kept[key] = Reason(*key, example=str(letter.position))
        kept[key].add(letter)
    totals = Counter[str]()
    for reason in kept.values():
        totals[reason.code] += reason.count
    return sorted(kept.values(), key=lambda one: (-totals[one.code], one.code, -one.count, one.first_ms or 0))


def blurred(message: str) -> str:
    """Returns the message with # for each number, because numbers differ from request to request."""
    return _blurred(message[:_MESSAGE_READ])  # the cache keeps it, and another program's letter may hold a megabyte


@lru_cache(4096)
def _blurred(beginning: str) -> str:
    return _NUMBER.sub("#", beginning)[:_MESSAGE_SHOWN]


def show(screen: Console, topic: str, found: list[Reason]) -> None:
    """Write the list for people: a head line, each code with its reasons, and how to read one letter whole."""
    times = [ms for reason in found for ms in (reason.first_ms, reason.last_ms) if ms is not None]
    when = f", {_period(min(times), max(times))} UTC" if times else ""
    say(screen, f"{count(sum(reason.count for reason in found), 'dead letter')} in {topic}{when}")
    for code, alike in groupby(found, lambda reason: reason.code):
        group = list(alike)
        say(screen, f"\n{printable(code) or '(no code)'}  {sum(reason.count for reason in group):,}", "bold")
        width = max(len(f"{reason.count:,}") for reason in group) + 2
        for reason in group:
            say(screen, f"{reason.count:{width},}  {printable(reason.message) or '(no message)'}")
            where = (printable(reason.request_topic) or "no request topic", _period(reason.first_ms, reason.last_ms))
            say(screen, " " * width + "  " + " · ".join((*where, printable(reason.example))), "dim")
    if found:
        blur = "# stands for a number; " if any("#" in reason.message for reason in found) else ""
        say(screen, f"\n{blur}`dead-letters show {printable(found[0].example)}` shows that letter whole", "dim")


def _period(first_ms: int | None, last_ms: int | None) -> str:
    """Writes a period, and the day only once if it is one day."""
    first, last = moment(first_ms), moment(last_ms)
    day, _, _ = first.partition(" ")
    return first if first == last else f"{first} to {last.removeprefix(f'{day} ')}"


def show_letters(order: ShowOrder) -> int:
    """Print the letter at a place, which is its own or its request's. Without a place, print the newest wanted letters.

    Raises `BadConfiguration` if there is none, `Incomplete` if some could not be read.
    """
    kafka, topic = topic_of(order)
    at = None if order.place is None else Position.parse(order.place)
    if order.place is not None and at is None:
        raise BadConfiguration(f"{order.place}: a place is topic/partition/offset, of a dead letter or of its request")
    with Reader(kafka, topic) as reader:
        is_letters_own = at is not None and at.topic == topic
        found = [letter_at(reader, at)] if at is not None and is_letters_own else _search(reader, order, at, topic)
        for letter in found:
            if order.as_json:
                print_json(as_document(letter))
            else:
                _print(console(), letter)
        reader.expect_whole()
    return 0


def _search(reader: Reader, order: ShowOrder, at: Position | None, topic: str) -> list[Letter]:
    wanted = filter_of(order)
    candidates = filter(wanted.takes, letters(reader, wanted.starts(reader), topic))
    found = newest((letter for letter in candidates if at in (None, letter.origin)), order.most or 1)
    if not found:
        what = "such a dead letter" if at is None else f"a dead letter of the request {at}"
        raise BadConfiguration(f"{topic} does not hold {what}")
    return found


def newest(found: Iterable[Letter], most: int) -> list[Letter]:
    """Returns the `most` newest letters, the oldest of them first."""
    return heapq.nlargest(most, found, key=lambda letter: letter.record.timestamp_ms or 0)[::-1]


def as_document(letter: Letter) -> dict[str, object]:
    """Returns all of a letter, with its request in the members that `publish` takes."""
    return {
        "place": str(letter.position),
        "time_ms": letter.record.timestamp_ms,
        "request": None if letter.origin is None else str(letter.origin),
        "group": letter.group or None,
        "code": letter.code or None,
        "message": letter.message or None,
        "omitted": dict(letter.omitted),
        **envelope(letter.record._replace(headers=letter.headers)),
    }


def _print(screen: Console, letter: Letter) -> None:
    """Write a letter for people: a line for each member that is not empty, and the lines of a text value."""
    document = {"time": f"{moment(letter.record.timestamp_ms)} UTC", **as_document(letter), "time_ms": None}
    value = document.pop("value", None)
    for name, held in document.items():
        if held:
            text = held if isinstance(held, str) else json.dumps(held, ensure_ascii=False)
            say(screen, f"{name:<12}  {printable(text)}")
    for line in str(value or "").splitlines():
        say(screen, f"  {printable(line)}")
