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
_SEPARATORS = {".csv": ",", ".tsv": "\\t"}
_NOT_WRITTEN = {".npz", *_SEPARATORS}  # as outputs they would hold JSON lines
_HEAD = 4096  # bytes of a file that show whether it is text


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
    limit: int | None = option(None, "Only the first so many rows or lines.", min=1)
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
        if self.force and self.output is None:
            raise BadConfiguration("--force does nothing without --output: standard output is not a file of its own")
        if not self.is_piped and not self.file.exists():
            raise BadConfiguration(f"{self.file}: there is no such file")
        if (separator := _SEPARATORS.get(self.file.suffix.lower())) is not None:
            raise BadConfiguration(
                f"{self.file}: is {self.file.suffix[1:].upper()}, and rows come as .npy: "
                f"np.save('rows.npy', np.loadtxt('{self.name}', 'float32', delimiter='{separator}', ndmin=2)), in the "
                "type that the model takes, and with skiprows=1 where the first line has names"
            )
        if not self.is_array and self.file.is_file() and _is_binary(self.file):
            raise BadConfiguration(f"{self.file}: is no text; rows come as .npy or .npz, requests as lines of JSON")
        if self.output is not None and self.output.suffix.lower() in _NOT_WRITTEN:
            raise BadConfiguration(
                f"{self.output}: answers are written as .npy, one for each output, or as JSON lines: give it the name "
                f"{self.output.with_suffix('.npy').name} or {self.output.with_suffix('.jsonl').name}"
            )
        if self.wants_arrays and not self.is_array:
            raise BadConfiguration(
                f"{self.output}: only rows of a .npy or .npz are answered as .npy; a request may have any number of "
                "rows, and a refused one none: give another name for JSON lines"
            )


def _is_binary(file: Path) -> bool:
    """JSON has no NUL, and nearly every other format has one near its beginning."""
    with file.open("rb") as opened:
        return b"\0" in opened.read(_HEAD)
