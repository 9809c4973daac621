"""Skips every test of this folder where there is no GPU, with the reason that the worker itself would give.

Where a driver is, CUDA has to work: anything else that is missing fails the tests.
"""

from __future__ import annotations

import pytest

from tests.models import mlp, save
from worker.inference.model_loading import load
from worker.settings import ModelSettings

NO_GPU = ("shows no NVIDIA driver", "built without CUDA")


@pytest.fixture(scope="session", autouse=True)
def gpu(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The device of a model with a free choice."""
    device = load(ModelSettings(path=save(mlp(), tmp_path_factory.mktemp("gpu"))), max_batch_size=2).device
    if device.name == "cpu":
        give_up = pytest.skip if any(reason in device.reason for reason in NO_GPU) else pytest.fail
        give_up(f"no GPU: {device.reason}")
    return device.name
