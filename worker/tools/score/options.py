"""What can be asked of `score` on the command line."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from worker.core.failures import BadConfiguration
from worker.terminal.command_options import Config, flag, option

STDIN = Path("-")


@dataclass(frozen=True, kw_only=True)
class ScoreOrder:
    """Answer a file without Kafka, as a worker would: the same checks, batches and answers, in order."""

    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The ONNX model.", show_default=False)]
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Rows (.npy; .npz with an array per input), or requests as JSON lines; `-` reads them from a pipe.",
            show_default=False,
        ),
    ]
    output: Path | None = option(None, "Where answers go: .npy for rows, else JSON lines.", "FILE", "--output", "-o")
    batch_size: int | None = option(None, "Rows of one inference, instead of WORKER_BATCHING__MAX_BATCH_SIZE.", min=1)
    force: bool = flag("--force", "Write over files that are there already.")
    config: Config = None

    @property
    def name(self) -> str:
        """What is read, as records and messages can carry it: a file's name may be no UTF-8."""
        return "standard input" if self.is_piped else os.fsencode(self.file).decode(errors="replace")

    @property
    def is_piped(self) -> bool:
        return self.file == STDIN

    @property
    def unit(self) -> str:
        """What is counted."""
        return "row" if self.is_array else "line"

    @property
    def is_array(self) -> bool:
        return self.file.suffix in {".npy", ".npz"}

    @property
    def wants_arrays(self) -> bool:
        return self.output is not None and self.output.suffix == ".npy"

    def check(self) -> None:
        """Raises `BadConfiguration` for what no model could do."""
        if not self.is_piped and not self.file.exists():
            raise BadConfiguration(f"{self.file}: there is no such file")
        if self.wants_arrays and not self.is_array:
            raise BadConfiguration(f"{self.output}: only rows of a .npy or .npz are answered as .npy")
