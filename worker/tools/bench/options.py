"""The options of `bench` on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from worker.terminal.command_options import AsJson, Brokers, Config, argument, option


@dataclass(frozen=True, kw_only=True)
class BenchOrder:
    """Measure the worker under load, from Kafka to Kafka, next to a loop written by hand and to one by one.

    It says what the limit is. Without brokers in the settings it runs on a mock inside this process.
    On a Kafka it makes topics of its own, deletes them in the end, and touches no others.
    """

    model: Path | None = argument(None, "The ONNX model, if not the settings'; else the demo's.", "MODEL")
    rate: float | None = option(
        None, "The steady load, requests a second; else half of the worker's maximum.", "N", min=1, max=10_000_000
    )
    seconds: float = option(4.0, "How long each load lasts.", "S", min=0.2, max=3600)
    rows_per_request: int = option(1, "Rows in a request.", "N", min=1, max=65_536)
    encoding: Literal["rows", "json", "protobuf", "binary"] | None = option(
        None,
        "rows (if the model takes them, the default), binary (else), json or protobuf.",
        "NAME",
        show_default=False,
    )
    prefix: str | None = option(
        None, "What the names of topics and groups made begin with; else inference-worker-bench.", "TEXT"
    )
    as_json: AsJson = False
    config: Config = None
    bootstrap_servers: Brokers = None
