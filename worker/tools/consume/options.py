"""What can be asked of `consume` on the command line. Imported with the command line: nothing heavy in here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from worker.terminal.command_options import AskedModel, Brokers, Config, End, add_command
from worker.terminal.streams import give_stdout_back


@dataclass(frozen=True, kw_only=True)
class ConsumeOrder:
    """Show answers as they come, or what lies in any topic. Joins no group and commits nothing."""

    topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="The topic; otherwise the settings' response topic.")
    ] = None
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="All that the topic has; with --last, look through all of it.")
    ] = False
    last: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="The newest N of those that the options below choose, and what comes then."
        ),
    ] = None
    follow: Annotated[
        bool | None,
        typer.Option(
            "--follow/--no-follow",
            help="Go on after the end, or stop there, as is the default for --from-beginning and --last in a file or "
            "pipe.",
            show_default=False,
        ),
    ] = None
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, metavar="N", help="Stop after so many.")] = None
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            metavar="SECONDS",
            help="Stop when nothing wanted comes for so long, once what is there has been read.",
        ),
    ] = None
    errors_only: Annotated[bool, typer.Option("--errors-only", help="Only errors.")] = False
    key: Annotated[str | None, typer.Option(metavar="TEXT", help="Only with this key.")] = None
    request_ids: Annotated[
        list[str] | None,
        typer.Option(
            "--request-id",
            metavar="ID",
            help="Only the answer to this request, by its id or its source; may be repeated.",
        ),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON for each.")] = False
    model: AskedModel = None
    config: Config = None
    bootstrap_servers: Brokers = None


def register(app: typer.Typer, end: End) -> None:
    """Put the command on the command line."""
    add_command(app, "consume", ConsumeOrder, _act, end)


def _act(order: ConsumeOrder) -> int:
    from worker.tools.consume.command import consume  # noqa: PLC0415 - only the command that is called is imported

    give_stdout_back()
    return consume(order)
