"""`inference-worker dead-letters show`: whole dead letters, for people or, with every byte, for programs."""

from __future__ import annotations

import base64
import heapq
from collections.abc import Iterable

from rich.console import Console

from worker.codecs.dead_letters import Letter, Position
from worker.core.failures import BadConfiguration
from worker.terminal.command_line import check_idle
from worker.terminal.terminal import console, count, hang, print_json, printable, say
from worker.tools.consume.shown import decoded
from worker.tools.dead_letters.options import ShowOrder
from worker.tools.dead_letters.texts import brief, moment, shown
from worker.tools.dead_letters.wanted_letters import Wanted, letter_at, letters, place_of, topic_of, wanted_of
from worker.tools.kafka.reader import Reader

# A screen or so of a value; --json has all of it.
MOST_LINES = 40
MOST_CHARACTERS = 4000
_INDENT = " " * 10


def show_letters(order: ShowOrder) -> int:
    """Print the letter at a place, its own or its request's; without one the newest `most` of those asked for.

    Raises `BadConfiguration` when there is none, `Incomplete` where one or more could not be read.
    """
    kafka, topic = topic_of(order)
    at = None if order.place is None else place_of(order.place)
    is_letters_own = at is not None and at.topic == topic
    if is_letters_own:
        check_idle(
            "with the place of a dead letter",
            n=order.most,
            code=order.code,
            since=order.since,
            request_topic=order.request_topic,
        )
    with Reader(kafka, topic) as reader:
        if at is not None and is_letters_own:
            found = [letter_at(reader, at)]
        else:
            found = _search(reader, wanted_of(order), at, order.most or 1, topic)
    screen = console()
    for number, letter in enumerate(found):
        if order.as_json:
            print_json(as_document(letter))
        else:
            _print(screen, letter, "\n" if number else "")
    reader.expect_whole()
    return 0


def _search(reader: Reader, wanted: Wanted, at: Position | None, most: int, topic: str) -> list[Letter]:
    candidates = letters(reader, wanted, topic)
    found = newest((letter for letter in candidates if at is None or letter.origin == at), most)
    if not found:
        what = "such a dead letter" if at is None else f"a dead letter of the request {at}"
        raise BadConfiguration(f"{topic} does not hold {what}")
    return found


def newest(found: Iterable[Letter], most: int) -> list[Letter]:
    """The last ones in time, at most so many, the oldest of them first."""
    latest = heapq.nlargest(most, found, key=lambda letter: letter.record.timestamp_ms or 0)
    return latest[::-1]


def as_document(letter: Letter) -> dict[str, object]:
    """All of a letter for a program: bytes in base64, beside them as text where they are."""
    record, origin = letter.record, letter.origin
    return {
        "place": str(letter.position),
        "time_ms": record.timestamp_ms,
        "request": None if origin is None else str(origin),
        "group": letter.group or None,
        "code": letter.code or None,
        "message": letter.message or None,
        "omitted": dict(letter.omitted),
        "headers": [{"name": name, **_bytes(value)} for name, value in letter.headers],
        "key": None if record.key is None else _bytes(record.key),
        "value": None if record.value is None else _bytes(record.value),
    }


def _bytes(value: bytes | None) -> dict[str, str | None]:
    encoded = None if value is None else base64.b64encode(value).decode()
    text = decoded(value)
    return {"base64": encoded} if text is None else {"base64": encoded, "text": text}


def _print(screen: Console, letter: Letter, before: str) -> None:
    record, origin = letter.record, letter.origin
    by = f" by group {printable(letter.group)}" if letter.group else ""
    say(screen, f"{before}{printable(str(letter.position))}", "bold")
    _fact(screen, "rejected", f"{moment(record.timestamp_ms)} UTC{by}")
    _fact(screen, "code", printable(letter.code) or "(no code)")
    _fact(screen, "message", printable(letter.message) or "(no message)")
    _fact(screen, "request", "(the letter does not say where it lay)" if origin is None else printable(str(origin)))
    _fact(screen, "key", _omitted(letter, "key") or brief(record.key))
    _print_headers(screen, letter)
    _print_value(screen, letter)


def _print_headers(screen: Console, letter: Letter) -> None:
    said = [f"{printable(name)}: {brief(value)}" for name, value in letter.headers]
    for number, line in enumerate([_omitted(letter, "headers")] if "headers" in letter.omitted else said or ["(none)"]):
        _fact(screen, "" if number else "headers", line)


def _print_value(screen: Console, letter: Letter) -> None:
    value = letter.record.value
    if value is None:
        _fact(screen, "value", _omitted(letter, "value") or letter.record.unreadable or "null")
        return
    seen = shown(value, MOST_LINES, MOST_CHARACTERS)
    cut = "" if seen.is_whole else "; this is the beginning, --json has all of it"
    _fact(screen, "value", f"{count(len(value), 'byte')}, {seen.kind}{cut}" if value else "empty")
    for line in seen.lines:
        say(screen, f"  {line}")


def _omitted(letter: Letter, what: str) -> str:
    """Empty when the letter has it."""
    size = letter.omitted.get(what)
    return "" if size is None else f"left out: it did not fit into the dead letter ({printable(size)})"


def _fact(screen: Console, name: str, text: str) -> None:
    hang(screen, f"{name:<8}", text)
