"""What can be asked of `profile` on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from worker.terminal.command_options import AsJson, Config, argument, option


@dataclass(frozen=True, kw_only=True)
class ProfileOrder:
    """Measure the model alone, without Kafka, at many batch sizes, and what its requests cost to read and to answer.

    Says which of the two is the limit, and what to set. With --lengths: also the BUCKETS to pad to.
    """

    model: Path | None = argument(None, "The ONNX model, if not the settings'.", "MODEL")
    encoding: Literal["rows", "json", "protobuf", "binary"] = option(
        "json", "How requests and answers are written: rows, json, protobuf or binary.", "NAME"
    )
    rate: float | None = option(None, "Say how many replicas so many requests a second take.", "N", min=0.001, max=1e9)
    latency_budget_ms: float | None = option(
        None, "Advise for this p99 from a request's record to its answer's.", "MS", min=0.001, max=1e9
    )
    rows_per_request: int = option(1, "Rows in a request.", "N", min=1, max=65_536)
    batch_sizes: str | None = option(
        None, "Rows of the batches to measure; else one request, doubled up to 1,024.", "N,N,..."
    )
    seconds: float = option(1.0, "How long each size is measured.", "S", min=0.01, max=3600)
    lengths: str | None = option(
        None, "Advise buckets for rows so long: one length a line; - is standard input.", "FILE"
    )
    bucket_axis: str | None = option(
        None, "The axis that they are about, if several are dynamic (axis 0 is the batch).", "INPUT:AXIS"
    )
    buckets: int = option(4, "How many buckets.", "N", min=1, max=64)
    as_json: AsJson = False
    config: Config = None
