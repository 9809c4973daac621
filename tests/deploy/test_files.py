"""The container files fit the worker and each other. They are only read: no Docker and no cluster is needed."""

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
    """Each package of a lock with its versions. Fails the test where hashes are missing."""
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
    extras = {"lmdb", "redis", "opentelemetry-sdk", "tokenizers", "pillow", "grpcio-tools", "authlib"}
    assert extras <= packed.keys()


def test_the_cuda_image_brings_cuda() -> None:
    """The CUDA provider's libraries come with it; only the driver is the host's."""
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
    """The worker accepts Compose's settings, and Compose's SIGKILL comes after the worker's own deadline."""
    worker = compose_file()["services"]["worker"]

    settings = settings_of(worker["environment"], tmp_path)

    assert seconds(worker["stop_grace_period"]) > settings.delivery.drain_timeout_s + CLOSE_TIMEOUT


def test_the_composed_model_is_where_the_file_says() -> None:
    """By default the mounted folder exists and holds the demonstration's model."""
    worker = compose_file()["services"]["worker"]

    [mount] = worker["volumes"]
    model = Path(interpolated(worker["environment"]["WORKER_MODEL__PATH"]))

    assert model.parent == Path(mount["target"])
    assert (ROOT / interpolated(mount["source"]) / model.name).is_file()
