"""What can be asked of the three commands on the command line.

Each command's options are mixins, put together so that `--help` lists them in this order: which letters, what to do
with them, where they lie. (A dataclass takes the fields of its last base first.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from worker.terminal.command_options import Config


@dataclass(frozen=True, kw_only=True)
class WhichLetters:
    """Those of the topic that are meant."""

    code: Annotated[str | None, typer.Option("--code", help="Only letters with this error code.", metavar="CODE")] = (
        None
    )
    since: Annotated[
        str | None,
        typer.Option(
            "--since", help="Only letters since: 90s, 15m, 2h, 3d ago, or an ISO 8601 time (UTC).", metavar="TIME"
        ),
    ] = None
    request_topic: Annotated[
        str | None, typer.Option("--request-topic", help="Only requests that came from this topic.", metavar="TOPIC")
    ] = None


@dataclass(frozen=True, kw_only=True)
class WhereLetters:
    """Where they lie, and how what is found is written."""

    topic: Annotated[
        str | None, typer.Option("--topic", help="The dead-letter topic, if not the settings'.", metavar="TOPIC")
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line, with everything.")] = False
    config: Config = None


@dataclass(frozen=True, kw_only=True)
class ListOrder(WhereLetters, WhichLetters):
    """Why requests were rejected: one entry for each reason, with an example."""


@dataclass(frozen=True, kw_only=True)
class _Place:
    place: Annotated[
        str | None, typer.Argument(help="topic/partition/offset of the letter, or of its request.", metavar="[PLACE]")
    ] = None
    most: Annotated[
        int | None,
        typer.Option(
            "-n", help="The newest so many, unless PLACE is a letter's; else one.", min=1, max=1000, metavar="N"
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ShowOrder(WhereLetters, WhichLetters, _Place):
    """Show dead letters whole: where each came from, why, headers, key and value."""


@dataclass(frozen=True, kw_only=True)
class _Sent:
    limit: Annotated[int | None, typer.Option("--limit", help="Send at most so many.", min=1, metavar="N")] = None
    rate: Annotated[
        float | None, typer.Option("--rate", help="Send at most so many a second.", min=0.1, metavar="R")
    ] = None
    to: Annotated[
        str | None, typer.Option("--to", help="Send all to this topic, not where they came from.", metavar="TOPIC")
    ] = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what would be sent, and touch nothing.")] = False
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            help="Consumer group that remembers what was sent, for about a hundred different filters at once; else the "
            "dead-letter topic's name and -replay.",
            metavar="GROUP",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ReplayOrder(WhereLetters, _Sent, WhichLetters):
    """Send rejected requests back to the topics they came from, as they were, but without their timeouts.

    Each dead letter goes once for each --group, whatever options select it and whatever is killed meanwhile; those
    that the options leave out, or whose topic is missing, wait for a later replay. A request that is rejected again
    gets a new letter, which the next replay sends too: mend the cause first.
    """
