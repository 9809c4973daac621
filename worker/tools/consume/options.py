"""The options of `consume`."""

from __future__ import annotations

from dataclasses import dataclass

from worker.terminal.command_options import AskedModel, Brokers, Config, flag, option


@dataclass(frozen=True, kw_only=True)
class ConsumeOrder:
    """Show answers as they come, or what lies in any topic. Joins no group and commits nothing."""

    topic: str | None = option(None, "The topic; otherwise the settings' response topic.", "TOPIC")
    from_beginning: bool = flag("--from-beginning", "All that the topic has.")
    last: int | None = option(
        None, "The newest N of those that the options below choose, and what comes then.", "N", min=1
    )
    follow: bool | None = option(
        None,
        "Go on after the end, or stop there, as is the default for --from-beginning and --last in a file or pipe.",
        None,
        "--follow/--no-follow",
        show_default=False,
    )
    count: int | None = option(None, "Stop after so many.", "N", "--count", "-n", min=1)
    errors_only: bool = flag("--errors-only", "Only errors.")
    request_ids: list[str] | None = option(
        None, "Only the answer to this request, by its id or its source; may be repeated.", "ID", "--request-id"
    )
    as_json: bool = flag("--json", "One line of JSON for each.")
    model: AskedModel = None
    config: Config = None
    bootstrap_servers: Brokers = None
