"""What can be asked of `bench` on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from worker.terminal.command_options import AsJson, Brokers, Config, argument, flag, option


@dataclass(frozen=True, kw_only=True)
class BenchOrder:
    """Measure workers under load, from Kafka to Kafka, beside a loop that answers one by one.

    Without brokers in the settings it runs on a mock inside this process.
    On a Kafka it makes topics of its own, deletes them in the end, and touches no others.
    """

    model: Path | None = argument(None, "The ONNX model, if not the settings'; else the demo's.", "MODEL")
    sets: list[str] | None = option(
        None,
        "Settings of one worker, as in MAX_BATCH_SIZE=64 LINGER_MS=5; again for another beside it.",
        '"NAME=VALUE ..."',
        "--set",
    )
    rates: str = option("10%,50%,80%", "Steady loads: requests a second, or parts of the first maximum.", "N,N%,...")
    rounds: int = option(3, "Medians of so many rounds.", "N", min=1, max=1000)
    seconds: float = option(2.0, "How long each load lasts in each round.", "S", min=0.2, max=3600)
    replicas: int = option(1, "Processes of each contender.", "N", min=1, max=64)
    partitions: int | None = option(
        None, "Of the topics made; else 4, as the embedded broker has.", "N", min=1, max=10_000
    )
    rows_per_request: int = option(1, "Rows in a request.", "N", min=1, max=65_536)
    encoding: Literal["rows", "json", "protobuf", "binary"] | None = option(
        None,
        "rows (if the model takes them, the default), binary (else), json or protobuf.",
        "NAME",
        show_default=False,
    )
    embedded: bool = flag("--embedded", "On a mock broker, also where the settings name brokers.")
    prefix: str | None = option(
        None, "What the names of topics and groups made begin with; else inference-worker-bench.", "TEXT"
    )
    plot: Path | None = option(None, "Draw latency against load, as .png or .svg.", "FILE")
    as_json: AsJson = False
    config: Config = None
    bootstrap_servers: Brokers = None
