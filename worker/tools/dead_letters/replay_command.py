"""`inference-worker dead-letters replay`: sends rejected requests back, or says what it would send.

It asks first, unless it is told not to: the topics that requests came from may have other readers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from worker.codecs.dead_letters import Letter, Position
from worker.codecs.request_headers import Envelopes
from worker.core.failures import BadConfiguration, Incomplete
from worker.core.records import Partition
from worker.settings.for_commands import ClientKafkaSettings
from worker.signals import stop_signals
from worker.terminal.asking import agreed, is_person_there
from worker.terminal.command_line import check_idle, check_readers
from worker.terminal.terminal import aside, console, print_json, progress, tell
from worker.tools.dead_letters.destinations import Destinations
from worker.tools.dead_letters.one_letter import OneLetter
from worker.tools.dead_letters.options import ReplayOrder
from worker.tools.dead_letters.progress import EVERYTHING, Bookmark, Trail
from worker.tools.dead_letters.replay import (
    LetterReader,
    LetterSender,
    Rehearsal,
    ReplayCounts,
    ReplayRun,
    SendingLimits,
)
from worker.tools.dead_letters.replay_group import Committed, ReplayGroup, committed
from worker.tools.dead_letters.replay_report import Readers, document, show
from worker.tools.dead_letters.wanted_letters import letter_at, place_of, topic_of, wanted_of
from worker.tools.kafka.groups import readers_of
from worker.tools.kafka.reader import Reader

# What is done with the counts once there are some, also those of a run that failed.
Report = Callable[[ReplayCounts], None]


class _Replay(NamedTuple):
    """What both a rehearsal and the replay itself are made of. `letter`: the only one that is meant."""

    kafka: ClientKafkaSettings
    topic: str
    group: str
    order: ReplayOrder
    topics: Destinations
    reader: Reader
    letter: Letter | None

    def rehearse(self, report: Report) -> ReplayCounts:
        """Count what would be sent. Touches nothing: it looks at the group and does not join it."""
        known = committed(self.kafka, self.group, list(self.reader.ends))
        return self._run(Rehearsal(), known, None, report)

    def send(self, report: Report) -> ReplayCounts:
        with ReplayGroup(self.kafka, self.topic, self.group, tell) as member:
            return self._run(member, member.join(list(self.reader.ends)), self.order.rate, report)

    def _run(
        self, sender: LetterSender, known: Mapping[Partition, Committed], rate: float | None, report: Report
    ) -> ReplayCounts:
        letters = self.reader if self.letter is None else OneLetter(self.reader, self.letter.position)
        trails = self._trails(known)
        with stop_signals() as signals:
            run = ReplayRun(
                letters=letters,
                topics=self.topics,
                sender=sender,
                envelopes=Envelopes(self.kafka.default_content_type),
                trails=trails,
                to=self.order.to,
                limits=SendingLimits(self.order.limit, rate),
                is_stop_asked=lambda: signals.stop_asked,
            )
            try:
                with progress(f"replaying {self.topic}", _span(letters, trails)) as advance:
                    run.run(advance)
            finally:
                report(run.counts)
        return run.counts

    def _trails(self, known: Mapping[Partition, Committed]) -> dict[Partition, Trail]:
        gone = self.reader.beginnings  # the letters below
        marks = {at: _bookmark(one, self.group).moved(EVERYTHING, 0, gone[at]) for at, one in known.items()}
        if self.letter is not None:
            partition = self.letter.record.partition
            return {partition: self._trail_of_one(self.letter, marks[partition])}
        wanted = wanted_of(self.order)
        selection, starts = wanted.selection, wanted.starts(self.reader)
        return {at: Trail(one, selection, one.start(selection, starts[at])) for at, one in marks.items()}

    def _trail_of_one(self, letter: Letter, mark: Bookmark) -> Trail:
        if mark.has(letter):
            raise BadConfiguration(
                f"{letter.position} went already, for group {self.group}; name another by --group to send it again"
            )
        return Trail(mark, EVERYTHING, letter.record.offset)


def replay(order: ReplayOrder) -> int:
    """0 when all that was asked for was sent.

    Raises `Incomplete` for letters that were not, and where a person says no; `BadConfiguration`, also where there is
    no person to ask, and `KafkaFatal` as any client does.
    """
    kafka, topic = topic_of(order)
    at = _place(order, topic)
    _check_may_ask(order)
    topics = Destinations(kafka, topic)
    if order.to is not None:
        check_readers("--to", order.to, kafka, "response_topic")
        if (fault := topics.find(order.to).fault) is not None:
            raise BadConfiguration(f"--to {order.to}: {fault}")
    with Reader(kafka, topic) as reader:
        letter = None if at is None else letter_at(reader, at)
        made = _Replay(kafka, topic, order.group or f"{topic}-replay", order, topics, reader, letter)
        if order.dry_run:
            return _rehearsed(made)
        if not order.yes:
            _ask(made)
        return _sent(made)


def _place(order: ReplayOrder, topic: str) -> Position | None:
    """Of the one letter. Raises `BadConfiguration` for what is none."""
    if order.place is None:
        return None
    check_idle(
        "with the place of a dead letter",
        code=order.code,
        since=order.since,
        request_topic=order.request_topic,
        limit=order.limit,
    )
    at = place_of(order.place)
    if at.topic != topic:
        raise BadConfiguration(
            f"{order.place}: is no place in {topic}; `dead-letters show {order.place}` finds the letter of a request"
        )
    return at


def _check_may_ask(order: ReplayOrder) -> None:
    if not (order.yes or order.dry_run or is_person_there()):
        raise BadConfiguration(
            "a replay sends requests to topics that others may read too, so it asks first, and no terminal is here to "
            "answer; give --yes, or --dry-run to see what would be sent and who reads there"
        )


def _rehearsed(made: _Replay) -> int:
    counts = made.rehearse(lambda counts: _report(counts, made, _readers(counts, made)))
    return _judged(counts, is_rehearsal=True)


def _ask(made: _Replay) -> None:
    """Show what would be sent, and who reads there. Raises `Incomplete` where that is not wanted."""
    counts = made.rehearse(lambda _: None)
    if counts.is_stopped:
        raise Incomplete("stopped when asked; nothing was sent")
    if counts.sent:
        show(aside(), counts, made.topic, _readers(counts, made))
        if not agreed("Send them?"):
            raise Incomplete("nothing was sent")


def _sent(made: _Replay) -> int:
    return _judged(made.send(lambda counts: _report(counts, made, None)), is_rehearsal=False)


def _readers(counts: ReplayCounts, made: _Replay) -> Readers:
    return readers_of(made.kafka, dict.fromkeys(to for to, _ in counts.sent))


def _report(counts: ReplayCounts, made: _Replay, readers: Readers | None) -> None:
    if made.order.as_json:
        print_json(document(counts, readers))
    else:
        show(console(), counts, made.topic, readers)


def _bookmark(committed: Committed, group: str) -> Bookmark:
    try:
        return Bookmark.read(committed.next_offset or 0, committed.notes)
    except ValueError as error:
        raise BadConfiguration(f"group {group} is not one of a replay: {error}; name another by --group") from error


def _span(letters: LetterReader, trails: Mapping[Partition, Trail]) -> int:
    return sum(max(0, letters.ends[at] - trail.next_offset) for at, trail in trails.items())


def _judged(counts: ReplayCounts, *, is_rehearsal: bool) -> int:
    if counts.is_stopped:
        raise Incomplete("stopped when asked; run this again to go on where it ended")
    unsent = sum(found.letters for found in (*counts.lost.values(), *counts.left.values()))
    if unsent and not is_rehearsal:
        raise Incomplete(f"{unsent:,} of the dead letters asked for were not sent back")
    return 0
