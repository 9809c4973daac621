"""Models loaded on the CPU, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import models
from worker.core.failures import BadConfiguration, RunFailure
from worker.inference.model import Model
from worker.inference.model_loading import load
from worker.settings import ModelSettings


def loaded(model: bytes, folder: Path, max_batch_size: int = 8, **settings: Any) -> Model:
    settings = {"device": "cpu", "path": models.save(model, folder), **settings}
    return load(ModelSettings(**settings), max_batch_size=max_batch_size)


def refusal(model: bytes, folder: Path, **settings: Any) -> str:
    """The refusal, which must be one line."""
    with pytest.raises(BadConfiguration) as refused:
        loaded(model, folder, **settings)
    assert "\n" not in str(refused.value)
    assert "model.onnx" in str(refused.value)
    return str(refused.value)


def arrays(result: Sequence[np.ndarray[Any, Any]] | RunFailure) -> Sequence[np.ndarray[Any, Any]]:
    assert not isinstance(result, RunFailure), result
    return result


def out_of_memory(*_: object) -> None:
    raise RuntimeError("Failed to allocate memory for requested buffer of size 4")
