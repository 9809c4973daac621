"""What a replay did, or would do: for people on a screen, or for programs as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console

from worker.terminal.terminal import count, hang, printable, say
from worker.tools.dead_letters.replay import ReplayCounts, Unsent
from worker.tools.kafka.groups import TopicReader

Readers = Mapping[str, Sequence[TopicReader]]

_PLACES_SHOWN = 5
_GROUPS_SHOWN = 10


def document(counts: ReplayCounts, readers: Readers | None) -> dict[str, object]:
    """Of the letters that were not sent the first hundred for each reason are named. `readers`: None, it was sent."""
    return {
        "dry_run": readers is not None,
        "sent": [{"topic": to, "code": code, "count": letters} for (to, code), letters in counts.sent.most_common()],
        "lost": _reasons(counts.lost),
        "left": _reasons(counts.left),
        "stopped": counts.is_stopped,
        **_readers_document(readers),
    }


def _readers_document(readers: Readers | None) -> dict[str, object]:
    if readers is None:
        return {}
    return {"readers": {topic: [group._asdict() for group in groups] for topic, groups in readers.items()}}


def _reasons(unsent: Mapping[str, Unsent]) -> list[dict[str, object]]:
    return [{"reason": reason, "count": found.letters, "places": found.places} for reason, found in unsent.items()]


def show(screen: Console, counts: ReplayCounts, topic: str, readers: Readers | None) -> None:
    """`readers`: of the topics that would be sent to; None, it was sent."""
    verb = "Sent" if readers is None else "Would send"
    say(screen, f"{verb} {count(counts.sent.total(), 'dead letter')} of {topic} back", "bold")
    width = len(f"{max(counts.sent.values(), default=0):,}") + 2
    for (to, code), letters in counts.sent.most_common():
        hang(screen, f"{letters:{width},}", f"{printable(code) or '(no code)'}, to {printable(to)}")
    for to, groups in (readers or {}).items():
        hang(screen, " " * width, f"{printable(to)} is read by {_named(groups)}", "dim")
    _show_unsent(screen, "Not sent, and no replay can", counts.lost)
    _show_unsent(screen, "Not sent, left for another replay", counts.left)


def _named(groups: Sequence[TopicReader]) -> str:
    if not groups:
        return "no consumer group of which the brokers tell this client"
    more = f" and {len(groups) - _GROUPS_SHOWN} groups more" if len(groups) > _GROUPS_SHOWN else ""
    return ", ".join(printable(str(group)) for group in groups[:_GROUPS_SHOWN]) + more


def _show_unsent(screen: Console, title: str, unsent: Mapping[str, Unsent]) -> None:
    if not unsent:
        return
    say(screen, f"\n{title}: {sum(found.letters for found in unsent.values()):,}", "bold")
    width = len(f"{max(found.letters for found in unsent.values()):,}") + 2
    for reason, found in unsent.items():
        hang(screen, f"{found.letters:{width},}", printable(reason))
        places = ", ".join(found.places[:_PLACES_SHOWN])
        more = " …" if found.letters > _PLACES_SHOWN else ""
        hang(screen, " " * width, printable(f"{places}{more}"), "dim")
