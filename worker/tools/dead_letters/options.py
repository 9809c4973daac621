"""What can be asked of the three commands on the command line.

Each command's options are mixins, put together so that `--help` lists them in this order: which letters, what to do
with them, where they lie. (A dataclass takes the fields of its last base first.)
"""

from __future__ import annotations

from dataclasses import dataclass

from worker.terminal.command_options import Brokers, Config, argument, flag, option


@dataclass(frozen=True, kw_only=True)
class WhichLetters:
    """Those of the topic that are meant."""

    code: str | None = option(None, "Only letters with this error code.", "CODE")
    since: str | None = option(None, "Only letters since: 90s, 15m, 2h, 3d ago, or an ISO 8601 time (UTC).", "TIME")
    request_topic: str | None = option(None, "Only requests that came from this topic.", "TOPIC")


@dataclass(frozen=True, kw_only=True)
class WhereLetters:
    """Where they lie, and how what is found is written."""

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
class _Sent:
    place: str | None = argument(None, "topic/partition/offset of the one letter to send.", "[PLACE]")
    limit: int | None = option(None, "Send at most so many.", "N", min=1)
    rate: float | None = option(None, "Send at most so many a second.", "R", min=0.1)
    to: str | None = option(None, "Send all to this topic, not where they came from.", "TOPIC")
    dry_run: bool = flag("--dry-run", "Count what would be sent and name who reads there; touch nothing.")
    yes: bool = flag("--yes", "Send without asking first, as a script has to.")
    group: str | None = option(
        None,
        "Consumer group that remembers what was sent, for about a hundred different filters at once; else the "
        "dead-letter topic's name and -replay.",
        "GROUP",
    )


@dataclass(frozen=True, kw_only=True)
class ReplayOrder(WhereLetters, _Sent, WhichLetters):
    """Send rejected requests back to the topics they came from, as they were, but without their timeouts.

    It shows what it would send and which consumer groups read there, and asks. Each dead letter goes once for each
    --group, whatever options select it and whatever is killed meanwhile; those that the options leave out, or whose
    topic is missing, wait for a later replay. A request that is rejected again gets a new letter, which the next replay
    sends too: mend the cause first.
    """
