"""How far the replays of a dead-letter topic are: which letters a replay selects, and which of them went already.

A consumer group has one number for each partition, the offset below which everything is done. A replay with a filter
does some records and leaves their neighbours, so the group's number alone cannot say what is left. The text that Kafka
keeps beside it says the rest:

    next_offset = 40                     every letter below 40 is done
    INTERNAL < 90                        and those of them below 90 that a replay with this filter took
    INTERNAL of topic a < 120            and these below 120

Whatever filters are used, in whatever order, each letter is done once, and none is out of reach. That holds because a
filter judges a letter by what never changes about it.

The text has an end, so it is kept short. What retention has removed is done. And a run that begins where a wider
selection ended, and passes over no letter of it, takes that one along and needs no line of its own: a replay of the
last two hours, every hour, stays one line for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import orjson

from worker.codecs.dead_letters import Letter

# What Kafka keeps beside an offset, in bytes: the brokers' default (`offset.metadata.max.bytes`). At offsets of seven
# digits that is 107 times, or 87 topics of 20 characters, or 43 filters by code, time and topic together.
MAX_NOTES = 4096


class Selection(NamedTuple):
    """Which letters. None stands for any; `but_topics` are request topics whose letters are left out."""

    code: str | None = None
    since_ms: int | None = None
    request_topic: str | None = None
    but_topics: frozenset[str] = frozenset()

    def takes(self, letter: Letter) -> bool:
        """Whether the letter is one of them. One without a time is older than any."""
        topic, time_ms = request_topic(letter), letter.record.timestamp_ms
        return (
            self.code in (None, letter.code)
            and (self.since_ms is None or (time_ms is not None and time_ms >= self.since_ms))
            and self.request_topic in (None, topic)
            and topic not in self.but_topics
        )

    def covers(self, other: Selection) -> bool:
        """Whether it takes every letter that the other takes."""
        return (
            self.code in (None, other.code)
            and (self.since_ms is None or (other.since_ms is not None and self.since_ms <= other.since_ms))
            and self.request_topic in (None, other.request_topic)
            and all(topic in other.but_topics or other.request_topic not in (None, topic) for topic in self.but_topics)
        )

    @property
    def is_empty(self) -> bool:
        return self.request_topic in self.but_topics

    def but(self, topic: str) -> Selection:
        """The same without the letters of one request topic."""
        return self._replace(but_topics=self.but_topics | {topic})


EVERYTHING = Selection()


def request_topic(letter: Letter) -> str:
    """The topic that the request lay in; empty when the letter does not say."""
    return letter.origin.topic if letter.origin is not None else ""


class Bookmark(NamedTuple):
    """How far the replays of one partition are: all letters below `next_offset` are done, and of each selection in
    `done` those below its offset.
    """

    next_offset: int = 0
    done: Mapping[Selection, int] = {}

    def has(self, letter: Letter) -> bool:
        offset = letter.record.offset
        return offset < self.next_offset or any(
            offset < end and selection.takes(letter) for selection, end in self.done.items()
        )

    def start(self, selection: Selection) -> int:
        """The offset below which every letter of the selection is done."""
        return max(self.next_offset, *(end for known, end in self.done.items() if known.covers(selection)), 0)

    def moved(self, selection: Selection, end: int) -> Bookmark:
        """The same, once every letter of the selection below `end` is done too, or gone."""
        if selection.is_empty or end <= self.start(selection):
            return self
        if selection == EVERYTHING:
            return Bookmark(end, {known: at for known, at in self.done.items() if at > end})
        kept = {known: at for known, at in self.done.items() if at > end or not selection.covers(known)}
        return Bookmark(self.next_offset, {**kept, selection: end})

    def wider(self, selection: Selection, start: int) -> list[Selection]:
        """Those that take every letter of the selection and more, and are done up to `start`."""
        ends = {EVERYTHING: self.next_offset, **self.done}
        return [known for known, end in ends.items() if end >= start and known.covers(selection)]

    def notes(self) -> str:
        """What is kept beside the offset; may be longer than `MAX_NOTES`."""
        return (
            orjson.dumps([_note(selection, end) for selection, end in self.done.items()]).decode() if self.done else ""
        )

    @classmethod
    def read(cls, next_offset: int, notes: str) -> Self:
        """What `notes` wrote. Raises `ValueError` for what it did not."""
        try:
            return cls(next_offset, dict(_noted(entry) for entry in orjson.loads(notes or "[]")))
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not the notes of a replay: {notes[:80]!r}") from error


def _note(selection: Selection, end: int) -> dict[str, Any]:
    said = {"code": selection.code, "since": selection.since_ms, "topic": selection.request_topic}
    note: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
    if selection.but_topics:
        note["but"] = sorted(selection.but_topics)
    return {**note, "end": end}


def _noted(entry: dict[str, Any]) -> tuple[Selection, int]:
    but_topics = frozenset(entry.get("but", ()))
    return Selection(entry.get("code"), entry.get("since"), entry.get("topic"), but_topics), entry["end"]


class Trail:
    """One run's way through one partition, letter by letter. Owned by the run."""

    def __init__(self, bookmark: Bookmark, wanted: Selection, start: int) -> None:
        """No letter that is wanted and not done lies before `start`."""
        self._bookmark = bookmark
        self._wanted = wanted
        self._taken = wanted
        self._along = bookmark.wider(wanted, start)
        self.next_offset = start

    def wants(self, letter: Letter) -> bool:
        """Whether the letter is to be sent back now."""
        return self._wanted.takes(letter) and not self._bookmark.has(letter)

    def passed(self, letter: Letter) -> None:
        """The letter is done, or not wanted, or left; so is each before it."""
        if self._along and not self._wanted.takes(letter) and not self._bookmark.has(letter):
            self._stay_behind(letter)
        self.next_offset = letter.record.offset + 1

    def left(self, letter: Letter) -> None:
        """The letter waits for a later run, and so does each behind it that comes from the same request topic."""
        topic = request_topic(letter)
        self._stay_behind(letter)
        if topic not in self._taken.but_topics:
            self._bookmark = self._bookmark.moved(self._taken, letter.record.offset)
            self._taken = self._taken.but(topic)

    def ended(self, end: int) -> None:
        """No letter is left below this offset."""
        self.next_offset = max(self.next_offset, end)

    @property
    def bookmark(self) -> Bookmark:
        """What to remember when everything so far has been sent."""
        bookmark = self._bookmark
        for selection in (*self._along, self._taken):
            bookmark = bookmark.moved(selection, self.next_offset)
        return bookmark

    def _stay_behind(self, letter: Letter) -> None:
        """The wider selections that the letter is one of end before it."""
        for selection in [one for one in self._along if one.takes(letter)]:
            self._bookmark = self._bookmark.moved(selection, letter.record.offset)
            self._along.remove(selection)
