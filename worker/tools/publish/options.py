"""What can be asked of `publish` on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from worker.terminal.command_options import AskedModel, Brokers, Config


@dataclass(frozen=True, kw_only=True)
class PublishOrder:
    """Publish requests, and with --wait see them answered.

    A line with `inputs` is a request, published as it stands.
    One with `value` is any record: `key`, `headers` and `value`, or these with `_base64` for bytes.
    """

    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help="JSON lines, or rows (.npy); - reads lines from standard input.",
            show_default=False,
        ),
    ] = None
    random: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Instead of a file: make N requests up for the model.")
    ] = None
    topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="The topic; otherwise the settings' only request topic.")
    ] = None
    key: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Key of requests without one of their own; {n} in it is the request's number."
        ),
    ] = None
    rate: Annotated[
        float | None, typer.Option(min=0.001, metavar="N", help="Requests a second, steadily; else as fast as can be.")
    ] = None
    wait: Annotated[
        bool,
        typer.Option(
            "--wait",
            help="Wait for the answers to these very requests, and say how long they took. Exit code 7 if one is an "
            "error or missing.",
        ),
    ] = False
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.1, metavar="SECONDS", help="With --wait: give up when no answer comes for so long; else for 30 s."
        ),
    ] = None
    response_topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="With --wait: where answers come, if not the settings'.")
    ] = None
    rows_per_request: Annotated[int | None, typer.Option(min=1, metavar="N", help="With .npy or --random; else 1.")] = (
        None
    )
    encoding: Annotated[
        Literal["rows", "json", "protobuf", "binary"] | None,
        typer.Option(
            metavar="NAME",
            help="With --random: rows (if the model takes them, the default), json, protobuf or binary.",
            show_default=False,
        ),
    ] = None
    seed: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="With --random: the same makes the same requests; else 0.")
    ] = None
    model: AskedModel = None
    as_json: Annotated[bool, typer.Option("--json", help="The result as one line of JSON.")] = False
    config: Config = None
    bootstrap_servers: Brokers = None
