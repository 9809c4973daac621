"""The options of `init`. They are imported with the command line, so this module imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from worker.terminal.command_options import WorkerOptions, flag, option


@dataclass(frozen=True, kw_only=True)
class InitOrder(WorkerOptions):
    """Write a settings file for the model at hand, and say what it takes and gives.

    What options and environment set goes into it, but no secret. Topics that are not named are requests,
    answers and rejected; the group is called as the model.
    """

    config: Annotated[Path, typer.Option("--config", help="The file to write.", metavar="FILE")] = Path("worker.toml")
    records: Path | None = option(None, "Records as JSON lines, to map to the inputs as `records infer` does.", "FILE")
    topic: str | None = option(None, "Or the topic of such records, which becomes the one to read.", "TOPIC")
    force: bool = flag("--force", "Write over a file that is there already.")
