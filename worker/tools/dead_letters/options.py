"""The options of `dead-letters list`, `show` and `replay`.

They are mixins, combined so that `--help` lists them in this order: which letters, what to do with them, and where they
are. (A dataclass takes the fields of its last base first.)
"""

from __future__ import annotations

from dataclasses import dataclass

from worker.terminal.command_options import Brokers, Config, argument, flag, option


@dataclass(frozen=True, kw_only=True)
class WhichLetters:
    """The letters that are meant."""

    code: str | None = option(None, "Only letters with this error code.", "CODE")
    since: str | None = option(None, "Only letters since: 90s, 15m, 2h, 3d ago, or an ISO 8601 time (UTC).", "TIME")
    request_topic: str | None = option(None, "Only requests that came from this topic.", "TOPIC")


@dataclass(frozen=True, kw_only=True)
class WhereLetters:
    """The topic they lie in, and how the result is written."""

    topic: str | None = option(None, "The dead-letter topic, if not the settings'.", "TOPIC")
    as_json: bool = flag("--json", "One JSON object a line, with everything.")
    config: Config = None
    bootstrap_servers: Brokers = None


@dataclass(frozen=True, kw_only=True)
class ListLettersOrder(WhereLetters, WhichLetters):
    """Why requests were rejected: one entry for each reason, with an example."""


@dataclass(frozen=True, kw_only=True)
class _Place:
    place: str | None = argument(None, "topic/partition/offset of the letter, or of its request.", "[PLACE]")
    most: int | None = option(
        None, "The newest so many, unless PLACE is a letter's; else one.", "N", "-n", min=1, max=1000
    )


@dataclass(frozen=True, kw_only=True)
class ShowOrder(WhereLetters, WhichLetters, _Place):
    """Show dead letters whole: where each came from, why, headers, key and value."""


@dataclass(frozen=True, kw_only=True)
class _Sending:
    limit: int | None = option(None, "Send at most so many.", "N", min=1)
    to: str | None = option(None, "Send all to this topic, not where they came from.", "TOPIC")
    dry_run: bool = flag("--dry-run", "Count what would be sent; send nothing.")
    yes: bool = flag("--yes", "Send without asking first, as a script has to.")


@dataclass(frozen=True, kw_only=True)
class ReplayOrder(WhereLetters, _Sending, WhichLetters):
    """Send rejected requests back to the topics they came from, as they were, but without their timeouts.

    It counts what it would send, and asks. A replay without --code, --since
    and --request-topic goes on where the last such replay ended, also where that was killed; it may send a few requests
    twice then. With one of these options it sends all that they choose, and remembers nothing. A request that is
    rejected again gets a new letter, which the next replay sends too: mend the cause first.
    """
