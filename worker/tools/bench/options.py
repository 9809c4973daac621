"""What can be asked of `bench` on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from worker.terminal.command_options import AsJson, Brokers, Config


@dataclass(frozen=True, kw_only=True)
class BenchOrder:
    """Measure workers under load, from Kafka to Kafka, beside a loop that answers one by one.

    Without brokers in the settings it runs on a mock inside this process.
    On a Kafka it makes topics of its own, deletes them in the end, and touches no others.
    """

    model: Annotated[
        Path | None,
        typer.Argument(
            metavar="MODEL", help="The ONNX model, if not the settings'; else the demo's.", show_default=False
        ),
    ] = None
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar='"NAME=VALUE ..."',
            help="Settings of one worker, as in MAX_BATCH_SIZE=64 LINGER_MS=5; again for another beside it.",
        ),
    ] = None
    rates: Annotated[
        str, typer.Option(metavar="N,N%,...", help="Steady loads: requests a second, or parts of the first maximum.")
    ] = "10%,50%,80%"
    rounds: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="Medians of so many rounds.")] = 3
    seconds: Annotated[
        float, typer.Option(min=0.2, max=3600, metavar="S", help="How long each load lasts in each round.")
    ] = 2.0
    replicas: Annotated[int, typer.Option(min=1, max=64, metavar="N", help="Processes of each contender.")] = 1
    partitions: Annotated[
        int | None,
        typer.Option(min=1, max=10_000, metavar="N", help="Of the topics made; else 4, as the embedded broker has."),
    ] = None
    rows_per_request: Annotated[int, typer.Option(min=1, max=65_536, metavar="N", help="Rows in a request.")] = 1
    encoding: Annotated[
        Literal["rows", "json", "protobuf", "binary"] | None,
        typer.Option(
            metavar="NAME",
            help="rows (if the model takes them, the default), binary (else), json or protobuf.",
            show_default=False,
        ),
    ] = None
    embedded: Annotated[
        bool, typer.Option("--embedded", help="On a mock broker, also where the settings name brokers.")
    ] = False
    prefix: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="What the names of topics and groups made begin with; else inference-worker-bench."
        ),
    ] = None
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw latency against load, as .png or .svg.")] = (
        None
    )
    as_json: AsJson = False
    config: Config = None
    bootstrap_servers: Brokers = None
