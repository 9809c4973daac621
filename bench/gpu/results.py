"""A part of the measurement: its description, its means, its JSON file, and the file as a table.

The file is rewritten with each line, so that a run that is cut keeps its lines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bench.gpu.networks import Network
from bench.ground import Job
from bench.tables import Section, markdown
from tests.kafka.cluster import Cluster
from tests.models import save

Line = Mapping[str, float | str | None]
CUT, DONE = "cut before its end", "all measured"
NOTHING = "-"


class Column(NamedTuple):
    """A figure of each line: its key in the JSON file, its heading in the table, and its format there."""

    key: str
    heading: str
    form: str = ",.3g"


@dataclass(frozen=True, slots=True)
class Stage:
    """A part's means. `seconds`: the time for one measurement; `batches`: row counts; `folder`: the models' folder;
    `roots`: other checkouts."""

    device: str
    seconds: float
    networks: Sequence[Network]
    batches: Sequence[int]
    folder: Path
    kafka: Cluster | None
    tell: Callable[[str], None]
    roots: Sequence[str] = ()

    @property
    def is_gpu(self) -> bool:
        return self.device != "cpu"

    @property
    def cluster(self) -> Cluster:
        assert self.kafka is not None, "this part has no Kafka"
        return self.kafka

    def model(self, network: Network) -> Path:
        """Returns the network's file, which is written once for all parts."""
        path = self.folder / f"{network.title}.onnx"
        if not path.exists():
            self.tell(f"builds {network.title}")
            save(network.build(), self.folder, f"{network.title}.part").rename(path)
        return path

    def job(self, network: Network, requests: Sequence[str] = (), **settings: str) -> Job:
        """Returns the job of a worker, or a loop, on this device."""
        chosen = {"MODEL__DEVICE": self.device, **network.settings, **settings}
        return Job(self.cluster, requests, self.model(network), network.batch, chosen)


class Case(NamedTuple):
    """A measurement of a part: the labels that its lines share, and their source. If it fails, the others go on."""

    labels: Line
    lines: Callable[[], Iterator[Line]]


class Part(NamedTuple):
    """A part of the measurement. It is cut after `limit` seconds. `notes` draws conclusions from its lines."""

    name: str
    title: str
    how: str
    columns: Sequence[Column]
    cases: Callable[[Stage], Iterator[Case]]
    limit: float
    has_kafka: bool = False
    notes: Callable[[Sequence[Line]], list[str]] = lambda _: []


def of(network: Network, **more: float | str) -> Line:
    """Returns the labels of a case."""
    return {"network": network.name, "precision": network.precision, **more}


def rounded(line: Mapping[str, float | str | None]) -> Line:
    """Rounds figures to five digits, which are enough, and readable."""
    return {key: float(f"{value:.5g}") if isinstance(value, float) else value for key, value in line.items()}


NETWORK = (Column("network", "network"), Column("precision", "precision"))


class Results:
    """One part's file. `about` describes the order and the machine."""

    def __init__(self, folder: Path, part: str, about: Mapping[str, Any]) -> None:
        self._path = path_of(folder, part)
        self._lines: list[Line] = []
        self._all: dict[str, Any] = {"part": part, **about, "ended": CUT, "lines": self._lines}
        self._write()

    def add(self, line: Line) -> None:
        """Add a line of the table, or a line with the reason as `failed`."""
        self._lines.append(line)
        self._write()

    def end(self, how: str) -> None:
        """Note that no lines follow, and why."""
        self._all["ended"] = how
        self._write()

    def _write(self) -> None:
        whole = self._path.with_suffix(".part")
        whole.write_text(json.dumps(self._all, indent=1) + "\n")
        whole.replace(self._path)


def path_of(folder: Path, part: str) -> Path:
    return folder / f"gpu-{part}.json"


def read(folder: Path, part: str) -> dict[str, Any] | None:
    """Returns the content of a part's file, or None if there is none."""
    path = path_of(folder, part)
    return json.loads(path.read_text()) if path.exists() else None


def cut(folder: Path, part: str, why: str) -> None:
    """Write into the file of a part that was killed or never began why it ends, unless the file says it already."""
    found = read(folder, part) or {"part": part, "ended": CUT, "lines": []}
    if found["ended"] == CUT:
        path_of(folder, part).write_text(json.dumps({**found, "ended": why}, indent=1) + "\n")


def page(folder: Path, parts: Sequence[Part]) -> str:
    """Returns the tables of all parts that were run."""
    files = [(part, found) for part in parts if (found := read(folder, part.name)) is not None]
    assert files, f"no results in {folder}"
    tables = [markdown(section(part, found), f"_{found.get('about', 'machine unknown')}_") for part, found in files]
    return "\n".join(line for lines in tables for line in lines)


def section(part: Part, found: Mapping[str, Any]) -> Section:
    """Returns one part's table. Its notes name failed cases, missing figures, and an early end."""
    lines: Sequence[Line] = found["lines"]
    measured = [line for line in lines if "failed" not in line]
    notes = part.notes(measured)
    notes += [f"{_labels(part, line)}: {line['failed']}" for line in lines if "failed" in line]
    notes += [f"missing: {why}" for why in dict.fromkeys(line.get("missing") for line in measured) if why]
    if found["ended"] != DONE:
        notes.append(str(found["ended"]))
    columns = [column.heading for column in part.columns]
    rows = [[_cell(column, line.get(column.key)) for column in part.columns] for line in measured]
    return Section(part.title, part.how, columns, rows, notes=notes)


def _labels(part: Part, line: Line) -> str:
    """Returns the labels of a failed case."""
    return ", ".join(each for column in part.columns if isinstance(each := line.get(column.key), str))


def _cell(column: Column, value: float | str | None) -> str:
    if value is None or isinstance(value, str):
        return value or NOTHING
    return format(int(value) if column.form == "d" else value, column.form)
