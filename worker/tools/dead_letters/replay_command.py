"""`inference-worker dead-letters replay`: sends rejected requests back, or says what it would send."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console

from worker.codecs.request_headers import Envelopes
from worker.core.failures import BadConfiguration, Incomplete
from worker.core.records import Partition
from worker.settings.for_commands import ClientKafkaSettings
from worker.signals import stop_signals
from worker.terminal.command_line import check_readers
from worker.terminal.terminal import console, count, hang, print_json, printable, progress, say, tell
from worker.tools.dead_letters.destinations import Destinations
from worker.tools.dead_letters.options import ReplayOrder
from worker.tools.dead_letters.progress import EVERYTHING, Bookmark, Trail
from worker.tools.dead_letters.replay import (
    LetterSender,
    Rehearsal,
    ReplayCounts,
    ReplayRun,
    SendingLimits,
    Unsent,
)
from worker.tools.dead_letters.replay_group import Committed, ReplayGroup, committed
from worker.tools.dead_letters.wanted_letters import Wanted, topic_of, wanted_of
from worker.tools.kafka.reader import Reader

_PLACES_SHOWN = 5


def replay(order: ReplayOrder) -> int:
    """0 when all that was asked for was sent.

    Raises `Incomplete` for letters that were not, `BadConfiguration` and `KafkaFatal` as any client does.
    """
    kafka, topic = topic_of(order)
    wanted = wanted_of(order)
    group = order.group or f"{topic}-replay"
    topics = Destinations(kafka, topic)
    if order.to is not None:
        check_readers("--to", order.to, kafka, "response_topic")
        if (fault := topics.find(order.to).fault) is not None:
            raise BadConfiguration(f"--to {order.to}: {fault}")
    with Reader(kafka, topic) as reader, _sender(kafka, topic, group, reader, order) as (sender, known):
        trails = _trails(reader, wanted, known, group)
        with stop_signals() as signals:
            run = ReplayRun(
                letters=reader,
                topics=topics,
                sender=sender,
                envelopes=Envelopes(kafka.default_content_type),
                trails=trails,
                to=order.to,
                limits=SendingLimits(order.limit, None if order.dry_run else order.rate),
                is_stop_asked=lambda: signals.stop_asked,
            )
            try:
                with progress(f"replaying {topic}", _span(reader, trails)) as advance:
                    run.run(advance)
            finally:
                _report(run.counts, topic, order)
    return _judged(run.counts, order)


@contextmanager
def _sender(
    kafka: ClientKafkaSettings, topic: str, group: str, reader: Reader, order: ReplayOrder
) -> Iterator[tuple[LetterSender, Mapping[Partition, Committed]]]:
    """What sends, and how far the group is. A dry run looks at the group and does not join it."""
    partitions = list(reader.ends)
    if order.dry_run:
        yield Rehearsal(), committed(kafka, group, partitions)
        return
    with ReplayGroup(kafka, topic, group, tell) as member:
        yield member, member.join(partitions)


def _trails(reader: Reader, wanted: Wanted, known: Mapping[Partition, Committed], group: str) -> dict[Partition, Trail]:
    selection, starts = wanted.selection, wanted.starts(reader)
    gone = reader.beginnings  # the letters below
    bookmarks = {at: _bookmark(committed, group).moved(EVERYTHING, 0, gone[at]) for at, committed in known.items()}
    return {at: Trail(one, selection, one.start(selection, starts[at])) for at, one in bookmarks.items()}


def _bookmark(committed: Committed, group: str) -> Bookmark:
    try:
        return Bookmark.read(committed.next_offset or 0, committed.notes)
    except ValueError as error:
        raise BadConfiguration(f"group {group} is not one of a replay: {error}; name another by --group") from error


def _span(reader: Reader, trails: Mapping[Partition, Trail]) -> int:
    return sum(max(0, reader.ends[at] - trail.next_offset) for at, trail in trails.items())


def _judged(counts: ReplayCounts, order: ReplayOrder) -> int:
    if counts.is_stopped:
        raise Incomplete("stopped when asked; run this again to go on where it ended")
    unsent = sum(found.letters for found in (*counts.lost.values(), *counts.left.values()))
    if unsent and not order.dry_run:
        raise Incomplete(f"{unsent:,} of the dead letters asked for were not sent back")
    return 0


def _report(counts: ReplayCounts, topic: str, order: ReplayOrder) -> None:
    if order.as_json:
        print_json(_document(counts, order))
    else:
        _print(counts, topic, order)


def _document(counts: ReplayCounts, order: ReplayOrder) -> dict[str, object]:
    """Of the letters that were not sent the first hundred for each reason are named."""
    return {
        "dry_run": order.dry_run,
        "sent": [{"topic": to, "code": code, "count": letters} for (to, code), letters in counts.sent.most_common()],
        "lost": _reasons(counts.lost),
        "left": _reasons(counts.left),
        "stopped": counts.is_stopped,
    }


def _reasons(unsent: Mapping[str, Unsent]) -> list[dict[str, object]]:
    return [{"reason": reason, "count": found.letters, "places": found.places} for reason, found in unsent.items()]


def _print(counts: ReplayCounts, topic: str, order: ReplayOrder) -> None:
    screen = console()
    verb = "Would send" if order.dry_run else "Sent"
    say(screen, f"{verb} {count(counts.sent.total(), 'dead letter')} of {topic} back", "bold")
    width = len(f"{max(counts.sent.values(), default=0):,}") + 2
    for (to, code), letters in counts.sent.most_common():
        hang(screen, f"{letters:{width},}", f"{printable(code) or '(no code)'}, to {printable(to)}")
    _print_unsent(screen, "Not sent, and no replay can", counts.lost)
    _print_unsent(screen, "Not sent, left for another replay", counts.left)


def _print_unsent(screen: Console, title: str, unsent: Mapping[str, Unsent]) -> None:
    if not unsent:
        return
    say(screen, f"\n{title}: {sum(found.letters for found in unsent.values()):,}", "bold")
    width = len(f"{max(found.letters for found in unsent.values()):,}") + 2
    for reason, found in unsent.items():
        hang(screen, f"{found.letters:{width},}", printable(reason))
        places = ", ".join(found.places[:_PLACES_SHOWN])
        more = " …" if found.letters > _PLACES_SHOWN else ""
        hang(screen, " " * width, printable(f"{places}{more}"), "dim")
