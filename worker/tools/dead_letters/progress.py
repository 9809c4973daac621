"""How far the replays of a dead-letter topic are: which letters a replay selects, and which of them went already.

A consumer group has one number for each partition, the offset below which everything is done. A replay with a filter
does some letters and leaves their neighbours, so the group's number alone cannot say what is left. The text that Kafka
keeps beside it says the rest, by code and request topic, as stretches of offsets:

    next_offset = 40                             every letter below 40 is done
    INTERNAL, any topic     60–90                and those with this code from 60 on and below 90
    any code, topic a       40–70, 100–120       and in these two stretches those whose request lay in this topic

A time is no filter of its own: it says where a stretch begins. So whatever is asked for, in whatever order, each letter
is done once, and none is out of reach.

The text has an end, so it is kept short. What retention has removed is done. Stretches that touch are one: a replay of
the last two hours, every hour, stays one for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import NamedTuple, Self

import orjson

from worker.codecs.dead_letters import Letter

# What Kafka keeps beside an offset, in bytes: the brokers' default (`offset.metadata.max.bytes`). At offsets of seven
# digits that is 226 stretches, or 59 topics of 20 characters with one each.
MAX_NOTES = 4096

Stretches = tuple[tuple[int, int], ...]  # offsets: from the first, below the second


class Selection(NamedTuple):
    """Which letters; None stands for any."""

    code: str | None = None
    request_topic: str | None = None

    def takes(self, letter: Letter) -> bool:
        return self.covers(Selection(letter.code, request_topic(letter)))

    def covers(self, other: Selection) -> bool:
        """Whether it takes every letter that the other takes."""
        return self.code in (None, other.code) and self.request_topic in (None, other.request_topic)


EVERYTHING = Selection()


def request_topic(letter: Letter) -> str:
    """The topic that the request lay in; empty when the letter does not say."""
    return letter.origin.topic if letter.origin is not None else ""


class Bookmark(NamedTuple):
    """How far the replays of one partition are: all letters below `next_offset` are done, and of each selection in
    `done` those in its stretches.
    """

    next_offset: int = 0
    done: Mapping[Selection, Stretches] = {}

    def has(self, letter: Letter) -> bool:
        offset = letter.record.offset
        return offset < self.next_offset or any(
            begin <= offset < end
            for selection, stretches in self.done.items()
            if selection.takes(letter)
            for begin, end in stretches
        )

    def start(self, selection: Selection, first: int) -> int:
        """Where to begin, at `first` or behind it: every letter of the selection in between is done."""
        found = max(self.next_offset, first)
        covering = [stretches for known, stretches in self.done.items() if known.covers(selection)]
        for begin, end in sorted(chain(*covering)):
            found = max(found, end) if begin <= found else found
        return found

    def moved(self, selection: Selection, begin: int, end: int) -> Bookmark:
        """The same, once every letter of the selection in this stretch is done too, or gone."""
        if begin >= end:
            return self
        done = {**self.done, selection: _joined((*self.done.get(selection, ()), (begin, end)))}
        next_offset = Bookmark(self.next_offset, done).start(EVERYTHING, 0)
        kept = {known: _untold(known, next_offset, done) for known in done}
        return Bookmark(next_offset, {known: stretches for known, stretches in kept.items() if stretches})

    def notes(self) -> str:
        """What is kept beside the offset; may be longer than `MAX_NOTES`."""
        said = [
            {name: value for name, value in selection._asdict().items() if value is not None} | {"done": stretches}
            for selection, stretches in self.done.items()
        ]
        return orjson.dumps(said).decode() if said else ""

    @classmethod
    def read(cls, next_offset: int, notes: str) -> Self:
        """What `notes` wrote. Raises `ValueError` for what it did not."""
        try:
            done = {
                Selection(entry.get("code"), entry.get("request_topic")): _joined((b, e) for b, e in entry["done"])
                for entry in orjson.loads(notes or "[]")
            }
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not the notes of a replay: {notes[:80]!r}") from error
        return cls(next_offset, done)


def _joined(stretches: Iterable[tuple[int, int]]) -> Stretches:
    """Ascending, and those that touch are one."""
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(stretches):
        if joined and begin <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((begin, end))
    return tuple(joined)


def _untold(selection: Selection, next_offset: int, done: Mapping[Selection, Stretches]) -> Stretches:
    """Its stretches that nothing else tells: neither the offset nor one of a wider selection."""
    wider = [done[known] for known in done if known != selection and known.covers(selection)]
    return tuple(
        (begin, end)
        for begin, end in done[selection]
        if end > next_offset and not any(first <= begin and end <= last for first, last in chain(*wider))
    )


class Trail:
    """One run's way through one partition, letter by letter. Owned by the run."""

    def __init__(self, bookmark: Bookmark, wanted: Selection, start: int) -> None:
        self._bookmark = bookmark
        self._wanted = wanted
        self._start = self.next_offset = start
        self._topics: dict[str, int | None] = {}  # request topics, and the first letter that is left of each, if any

    def wants(self, letter: Letter) -> bool:
        return self._wanted.takes(letter) and not self._bookmark.has(letter)

    def is_behind(self, letter: Letter) -> bool:
        """Whether a letter before it, from the same request topic, is left."""
        return self._topics.get(request_topic(letter)) is not None

    def passed(self, letter: Letter, *, is_left: bool = False) -> None:
        """It is done, or not wanted; or it `is_left`: it waits for a later run, with all behind it of its topic."""
        topic, offset = request_topic(letter), letter.record.offset
        if self._wanted.takes(letter) and self._topics.get(topic) is None:
            self._topics[topic] = offset if is_left else None
        self.next_offset = offset + 1

    def ended(self, end: int) -> None:
        """No letter is left below this offset."""
        self.next_offset = max(self.next_offset, end)

    @property
    def bookmark(self) -> Bookmark:
        """What to remember when everything so far has been sent."""
        left = [offset for offset in self._topics.values() if offset is not None]
        found = self._bookmark.moved(self._wanted, self._start, min(left, default=self.next_offset))
        for topic, offset in self._topics.items() if left else ():
            end = self.next_offset if offset is None else offset
            found = found.moved(Selection(self._wanted.code, topic), self._start, end)
        return found
