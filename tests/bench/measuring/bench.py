"""What a case is given: the broker, a folder, and what was asked for on the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.bench.measuring.ground import WIDTH
from tests.bench.measuring.running import WORKER, why_absent
from tests.kafka.cluster import Cluster
from tests.models import mlp, save

OUTPUTS = 16
SMALL, DEAR = (WIDTH,), (2048, 2048, 2048)


class Asked(NamedTuple):
    """The command line. None: what the case thinks right."""

    rounds: int
    rows: int | None
    seconds: float
    batches: Sequence[int] | None
    only: Sequence[str] | None
    roots: Sequence[str]


@dataclass(frozen=True, slots=True)
class Bench:
    """One run of the suite."""

    cluster: Cluster
    folder: Path
    asked: Asked
    tell: Callable[[str], None]

    def contenders(self, *names: str) -> list[str]:
        """Those of a case that were asked for, and the workers of other checkouts."""
        chosen = [name for name in names if self.asked.only is None or name in self.asked.only]
        return chosen + [f"{WORKER}@{root}" for root in self.asked.roots]

    def model(self, hidden: Sequence[int]) -> Path:
        """A file with a model of 256 floats in, 16 out."""
        return save(mlp(WIDTH, hidden, OUTPUTS), self.folder, f"mlp-{'-'.join(map(str, hidden))}")

    def rows(self, usual: int) -> int:
        """How many requests, unless asked otherwise."""
        return self.asked.rows or usual


def split(names: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Those that can take part here, and why the others cannot."""
    absent = {name: why for name in names if (why := why_absent(name))}
    return [name for name in names if name not in absent], absent
