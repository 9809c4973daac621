"""Models of every kind that the worker takes give the CPU's results on CUDA."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests import models
from tests.gpu.nets import on_cpu, outputs
from worker.codecs.examples import example_feeds
from worker.inference.model_loading import load
from worker.settings import ModelSettings

DEVICE = "cuda"
ROWS = 4
_NO_NUMBERS = ("BF16", "BYTES")
KINDS: dict[str, Callable[[], bytes]] = {
    "every datatype": lambda: models.identities({kind: kind for kind in models.ONNX_TYPES if kind not in _NO_NUMBERS}),
    "two inputs, two outputs": models.two_in_two_out,
    "a scalar a row": models.row_sums,
    "a sequence": models.sequence_mean,
    "a table": models.lookup,
    "token ids and a mask": models.bag_of_words,
    "three inputs of one length": models.text_scores,
    "counted on the CPU": models.bag_of_grams,
    "columns by what is in it": models.first_columns,
    "every second column": models.every_second,
    "rounded up": models.rounded_up,
    "a mean with a state": models.running_mean,
    "a GRU that resets before its product": models.gru,
    "scales for a batch": models.quantised_together,
    "strings": lambda: models.identity("BYTES"),
    "strings beside numbers": models.scalars_per_row,
}


@pytest.mark.parametrize("name", KINDS)
def test_answers_are_those_of_the_cpu(name: str, tmp_path: Path) -> None:
    """Every output of some rows is equal, also where a part of the model runs on the CPU, as strings do."""
    model = KINDS[name]()
    settings = ModelSettings(path=models.save(model, tmp_path), device=DEVICE, fixed_batch="pad")
    loaded = load(settings, max_batch_size=ROWS)
    feeds = example_feeds(loaded.signature, ROWS, np.random.default_rng(2))

    for found, wanted in zip(outputs(loaded, feeds), on_cpu(model, feeds), strict=True):
        assert found.shape == wanted.shape
        if found.dtype.kind in "fc":
            assert np.allclose(found, wanted, rtol=1e-3, atol=1e-3)
        else:
            assert found.tolist() == wanted.tolist()
