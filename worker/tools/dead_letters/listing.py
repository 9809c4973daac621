"""`inference-worker dead-letters list`: why requests were rejected, like with like.

Reads the topic once, from its beginning to the end that it has now, and keeps one entry for each reason; so memory does
not grow with the topic.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from rich.console import Console

from worker.codecs.dead_letters import Letter
from worker.terminal.terminal import console, hang, print_json, printable, say
from worker.tools.dead_letters.options import ListLettersOrder
from worker.tools.dead_letters.originals import REPLAY_OF
from worker.tools.dead_letters.progress import request_topic
from worker.tools.dead_letters.texts import period
from worker.tools.dead_letters.wanted_letters import letters, topic_of, wanted_of
from worker.tools.kafka.reader import Reader

# Reasons kept apart. A topic with more has messages that hold something of each request; the rest of them share one.
MOST_REASONS = 500
OTHERS = "(other messages)"

# A number that stands alone: FP32 and x2 are names, [1, 64] and "char 17" are not. Then ids in hexadecimal.
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?!\w|\.\d)|\b(?=[0-9a-f-]*\d)[0-9a-f-]{8,}\b")
_MESSAGE_READ, _MESSAGE_SHOWN = 1024, 300  # characters; looking for numbers takes the square of what is read


@dataclass(slots=True)
class Reason:
    """Letters alike. Times in milliseconds since the epoch, None while no letter has one.

    `replayed`: those of them whose request had been sent back before, and was rejected again.
    """

    code: str
    message: str
    request_topic: str
    example: str
    letters: int = 0
    replayed: int = 0
    first_ms: int | None = None
    last_ms: int | None = None

    def add(self, letter: Letter) -> None:
        time_ms = letter.record.timestamp_ms
        self.letters += 1
        self.replayed += any(name == REPLAY_OF for name, _ in letter.headers)
        if time_ms is not None:
            self.first_ms = time_ms if self.first_ms is None else min(self.first_ms, time_ms)
            self.last_ms = time_ms if self.last_ms is None else max(self.last_ms, time_ms)


def show_reasons(order: ListLettersOrder) -> int:
    """0, whatever was found. Raises `Stop` when the topic cannot be read, `Incomplete` when that is so of a part."""
    kafka, topic = topic_of(order)
    wanted = wanted_of(order)
    with Reader(kafka, topic) as reader:
        found = reasons(letters(reader, wanted, topic))
        if order.as_json:
            for reason in found:
                print_json(_as_json(reason))
        else:
            show(console(), topic, found)
        reader.expect_whole()
    return 0


def reasons(found: Iterable[Letter]) -> list[Reason]:
    """One entry for each code, message (numbers aside) and request topic: the commonest code first, then message,
    then the oldest: partitions are read in no order."""
    kept: dict[tuple[str, str, str], Reason] = {}
    for letter in found:
        key = (letter.code, blurred(letter.message), request_topic(letter))
        if key not in kept and len(kept) >= MOST_REASONS:
            key = (OTHERS, OTHERS, "")
        reason = kept.get(key)
        if reason is None:
            reason = kept[key] = Reason(*key, example=str(letter.position))
        reason.add(letter)
    totals: dict[str, int] = {}
    for reason in kept.values():
        totals[reason.code] = totals.get(reason.code, 0) + reason.letters
    return sorted(
        kept.values(), key=lambda reason: (-totals[reason.code], reason.code, -reason.letters, reason.first_ms or 0)
    )


def blurred(message: str) -> str:
    """The message with # for each number: what differs from request to request."""
    return _blurred(message[:_MESSAGE_READ])  # what is remembered is short: others may write a letter, too


@lru_cache(4096)
def _blurred(beginning: str) -> str:
    return _NUMBER.sub("#", beginning)[:_MESSAGE_SHOWN]


def _as_json(reason: Reason) -> dict[str, object]:
    return {
        "code": reason.code,
        "message": reason.message,
        "request_topic": reason.request_topic or None,
        "count": reason.letters,
        "replayed": reason.replayed,
        "first_ms": reason.first_ms,
        "last_ms": reason.last_ms,
        "example": reason.example,
    }


def show(screen: Console, topic: str, found: list[Reason]) -> None:
    """For people: a head line, beneath it each code with its reasons, and how to read one whole."""
    say(screen, _headline(topic, found))
    for code, alike in groupby(found, lambda reason: reason.code):
        group = list(alike)
        say(screen, f"\n{printable(code) or '(no code)'}  {sum(reason.letters for reason in group):,}", "bold")
        width = max(len(f"{reason.letters:,}") for reason in group) + 2
        for reason in group:
            hang(screen, f"{reason.letters:{width},}", printable(reason.message) or "(no message)")
            where = (printable(reason.request_topic) or "no request topic", period(reason.first_ms, reason.last_ms))
            hang(screen, " " * width, " · ".join((*where, printable(reason.example))), "dim")
    if found:
        blur = "# stands for a number; " if any("#" in reason.message for reason in found) else ""
        say(screen, f"\n{blur}`dead-letters show {printable(found[0].example)}` shows that letter whole", "dim")


def _headline(topic: str, found: list[Reason]) -> str:
    times = [time for reason in found for time in (reason.first_ms, reason.last_ms) if time is not None]
    count = sum(reason.letters for reason in found)
    when = f", {period(min(times), max(times))} UTC" if times else ""
    replayed = sum(reason.replayed for reason in found)
    again = f", {replayed:,} of them of requests sent back before" if replayed else ""
    if count == 1:
        return f"1 dead letter in {topic}{', of a request sent back before' if replayed else ''}{when}"
    return f"{count:,} dead letters in {topic}{again}{when}"
