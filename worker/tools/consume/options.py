"""What can be asked of `consume` on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from worker.terminal.command_options import AskedModel, Brokers, Config


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
