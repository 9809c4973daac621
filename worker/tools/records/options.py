"""The options of `records infer`, `try` and `contract`. Imports nothing heavy: `--help` must be fast."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from worker.terminal.command_options import AskedModel, Brokers, Config, flag, option
from worker.tools.options import WHOLE


@dataclass(frozen=True, kw_only=True)
class InferOrder:
    """Propose how the records of a topic, or of a file, feed the model, and show what they give.

    It reads the newest records, without a group. The settings that it writes have a comment for each entry.
    """

    model: AskedModel = None
    topic: str | None = option(None, "The topic of the records; otherwise the settings' only request topic.", "TOPIC")
    file: Path | None = option(None, "Records as JSON lines, instead of a topic.", "FILE")
    sample: int = option(100, "How many records are looked at.", "N", min=1, max=100_000)
    output: Path | None = option(None, "The settings file to write; else standard output.", "FILE", "--output", "-o")
    force: bool = flag("--force", "Write over a file that is there already.")
    config: Config = None
    bootstrap_servers: Brokers = None


@dataclass(frozen=True, kw_only=True)
class TryOrder:
    """Answer the records of a file without Kafka: each one's answer, or why it gets none. Exit code 7 if one has none.

    It is `score` with the model of the settings.
    """

    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="JSON lines (`-`: from standard input), a .csv or a .parquet.", show_default=False
        ),
    ]
    whole: bool = flag("--whole", WHOLE)
    config: Config = None


@dataclass(frozen=True, kw_only=True)
class ContractOrder:
    """Print what the topics hold, for the programs of others: an AsyncAPI document with JSON Schemas."""

    config: Config = None
