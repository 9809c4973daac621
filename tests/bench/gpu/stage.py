"""What a part is, and what it is given: a device, a folder of models, the time for one measurement, and a Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.bench.gpu.networks import Network
from tests.bench.gpu.results import Line
from tests.bench.measuring.ground import Job
from tests.kafka.cluster import Cluster
from tests.models import save


class Column(NamedTuple):
    """A figure of each line: the key in the JSON file, the heading in the table, how it is written there."""

    key: str
    heading: str
    form: str = ",.3g"


@dataclass(frozen=True, slots=True)
class Stage:
    """`seconds` is the time for one measurement, `minutes` that of the long one; `batches` are row counts;
    models lie in `folder`.
    """

    device: str
    seconds: float
    minutes: float
    networks: Sequence[Network]
    batches: Sequence[int]
    folder: Path
    kafka: Cluster | None
    tell: Callable[[str], None]

    @property
    def is_gpu(self) -> bool:
        return self.device != "cpu"

    @property
    def cluster(self) -> Cluster:
        assert self.kafka is not None, "this part has no Kafka"
        return self.kafka

    def model(self, network: Network) -> Path:
        """Its file, written once for all parts."""
        path = self.folder / f"{network.title}.onnx"
        if not path.exists():
            self.tell(f"builds {network.title}")
            save(network.build(), self.folder, f"{network.title}.part").rename(path)
        return path

    def job(self, network: Network, requests: Sequence[str] = (), **settings: str) -> Job:
        """For the worker, or a loop, on this device."""
        chosen = {"MODEL__DEVICE": self.device, **network.settings, **settings}
        return Job(self.cluster, requests, self.model(network), network.batch, chosen)


class Case(NamedTuple):
    """A measurement of a part: what its lines have in common, and what gives them. One that fails ends no other."""

    labels: Line
    lines: Callable[[], Iterator[Line]]


class Part(NamedTuple):
    """`limit`: seconds, after which it is cut. `notes`: what follows from its lines."""

    name: str
    title: str
    how: str
    columns: Sequence[Column]
    cases: Callable[[Stage], Iterator[Case]]
    limit: float
    has_kafka: bool = False
    notes: Callable[[Sequence[Line]], list[str]] = lambda _: []


def of(network: Network, **more: float | str) -> Line:
    """The labels of a case."""
    return {"network": network.name, "precision": network.precision, **more}


def rounded(line: Mapping[str, float | str | None]) -> Line:
    """Five digits are enough for every figure, and readable."""
    return {key: float(f"{value:.5g}") if isinstance(value, float) else value for key, value in line.items()}


NETWORK = (Column("network", "network"), Column("precision", "precision"))
