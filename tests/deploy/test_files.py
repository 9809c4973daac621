"""The container files, read: that they fit the worker and each other. Needs neither Docker nor a cluster."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.settings import interpolated, settings_of
from worker.app import CLOSE_TIMEOUT

ROOT = Path(__file__).parents[2]


def locked(name: str) -> dict[str, set[str]]:
    """Each package of a lock with its versions; each must have hashes."""
    versions: dict[str, set[str]] = {}
    for entry in re.split(r"\n(?=\w)", re.sub(r"(?m)^#.*\n", "", (ROOT / name).read_text()).strip()):
        found = re.match(r"([\w.-]+)==([\w.]+)", entry)
        assert found is not None, entry
        assert "--hash=sha256:" in entry, entry
        versions.setdefault(found[1], set()).add(found[2])
    return versions


def compose_file() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return found


def seconds(duration: str) -> float:
    assert duration.endswith("s")
    return float(duration.removesuffix("s"))


@pytest.mark.parametrize("variant", ["cpu", "cuda"])
def test_an_image_has_what_is_tested(variant: str) -> None:
    """Each image's lock holds every package at the version that the tests run on."""
    tested, packed = locked("requirements.txt"), locked(f"requirements-{variant}.txt")

    differing = {name: versions for name, versions in tested.items() if packed.get(name) != versions}

    assert differing.keys() <= {"onnxruntime", "onnxruntime-gpu"}
    assert {"lmdb", "redis", "opentelemetry-sdk"} <= packed.keys(), "the extras"


def test_the_cuda_image_brings_cuda() -> None:
    """The libraries that the CUDA provider loads come with it; only the driver is the host's."""
    packed = locked("requirements-cuda.txt")

    assert packed["onnxruntime-gpu"] == locked("requirements.txt")["onnxruntime-gpu"]
    assert {
        "nvidia-cublas",
        "nvidia-cuda-runtime",
        "nvidia-cudnn-cu13",
        "nvidia-cufft",
        "nvidia-curand",
    } <= packed.keys()


def test_a_composed_worker_may_drain(tmp_path: Path) -> None:
    """Compose's settings are accepted, and its SIGKILL comes after the worker's own deadline."""
    worker = compose_file()["services"]["worker"]

    settings = settings_of(worker["environment"], tmp_path)

    assert seconds(worker["stop_grace_period"]) > settings.delivery.drain_timeout_s + CLOSE_TIMEOUT


def test_the_composed_model_is_where_the_file_says() -> None:
    """Unless another is named, the folder that is mounted is there, and the demonstration's model in it."""
    worker = compose_file()["services"]["worker"]

    [mount] = worker["volumes"]
    model = Path(interpolated(worker["environment"]["WORKER_MODEL__PATH"]))

    assert model.parent == Path(mount["target"])
    assert (ROOT / interpolated(mount["source"]) / model.name).is_file()
