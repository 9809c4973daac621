"""What can be asked of `profile` on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from worker.terminal.command_options import AsJson, Brokers, Config


@dataclass(frozen=True, kw_only=True)
class ProfileOrder:
    """Measure the model alone, without Kafka, at many batch sizes; and advise which to set.

    With --rate and --latency-budget-ms: MAX_BATCH_SIZE, and the replicas needed.
    With --lengths or --lengths-from: the BUCKETS to which rows are padded, and what padding costs before and after.
    """

    model: Annotated[
        Path | None,
        typer.Argument(metavar="MODEL", help="The ONNX model, if not the settings'.", show_default=False),
    ] = None
    rate: Annotated[
        float | None, typer.Option(min=0.001, metavar="N", help="Advise for so many requests a second, all in all.")
    ] = None
    latency_budget_ms: Annotated[
        float | None,
        typer.Option(min=0.001, metavar="MS", help="Advise for this p99 from a request's record to its answer's."),
    ] = None
    rows_per_request: Annotated[int, typer.Option(min=1, max=65_536, metavar="N", help="Rows in a request.")] = 1
    batch_sizes: Annotated[
        str | None,
        typer.Option(metavar="N,N,...", help="Rows of the batches to measure; else one request, doubled up to 1,024."),
    ] = None
    seconds: Annotated[float, typer.Option(min=0.01, max=3600, metavar="S", help="How long each size is measured.")] = (
        1.0
    )
    transport_ms: Annotated[
        float | None,
        typer.Option(min=0, metavar="MS", help="What your Kafka takes for a request and its answer together, p99."),
    ] = None
    lengths: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Advise buckets for rows so long: one length a line; - is standard input."),
    ] = None
    lengths_from: Annotated[
        str | None,
        typer.Option(metavar="TOPIC", help="The same for requests in a topic. Joins no group and commits nothing."),
    ] = None
    sample: Annotated[
        int | None,
        typer.Option(min=1, max=1_000_000, metavar="N", help="With --lengths-from: the newest so many; else 5,000."),
    ] = None
    bucket_axis: Annotated[
        str | None,
        typer.Option(
            metavar="INPUT:AXIS,...",
            help="Whose lengths they are (axis 0 is the batch), if several are dynamic; more where all are equally "
            "long.",
        ),
    ] = None
    buckets: Annotated[
        int | None, typer.Option(min=1, max=64, metavar="N", help="At most so many buckets; else what pays, up to 8.")
    ] = None
    longest: Annotated[
        int | None,
        typer.Option(min=1, max=1_000_000, metavar="N", help="The last bucket holds rows so long; else the sample's."),
    ] = None
    boundaries: Annotated[
        str | None,
        typer.Option(metavar="N,N,...", help="Say what these buckets come to, instead of looking for better ones."),
    ] = None
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw rows/s and latency by batch size, as .png or .svg.")
    ] = None
    as_json: AsJson = False
    config: Config = None
    bootstrap_servers: Brokers = None
