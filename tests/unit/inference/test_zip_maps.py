"""A classifier that gives maps of probabilities is served as one that gives tensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from skl2onnx import to_onnx
from sklearn.linear_model import LogisticRegression

from tests import models
from worker.inference import model_file
from worker.inference.device import open_cpu
from worker.inference.model_file import LoadableModel
from worker.inference.session import Session

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3)).astype(np.float32)


def opened(model: str | bytes) -> Session:
    return open_cpu(LoadableModel(model, is_ort=False), 1, "").session


@pytest.mark.parametrize("classes", [[0, 1, 2], ["ok", "fraud", "unknown"]])
def test_probabilities_come_as_a_tensor(classes: list[object], tmp_path: Path) -> None:
    """In the order of the classes, under the output's own name, and equal to those of an export without the node."""
    trained = LogisticRegression().fit(X, RNG.choice(np.array(classes), len(X)))
    with_maps = to_onnx(trained, X[:1]).SerializeToString()
    plain = to_onnx(trained, X[:1], options={"zipmap": False}).SerializeToString()
    expected = ort.InferenceSession(plain).run(None, {"X": X})

    for model in (with_maps, str(models.save(with_maps, tmp_path))):
        session = opened(model)
        label, probabilities = [(node.name, node.type) for node in session.get_outputs()]
        assert (label[0], probabilities) == ("output_label", ("output_probability", "tensor(float)"))
        for name, own in zip((label[0], probabilities[0]), expected, strict=True):
            assert np.array_equal(session.run([name], {"X": X}, None)[0], own)


@pytest.mark.parametrize("labels", ["classlabels_int64s = [4, 7]", 'classlabels_strings = ["ok", "fraud"]'])
def test_the_number_of_classes_is_known_before_a_run(labels: str) -> None:
    """Even where the nodes before do not say it, as in exports of LightGBM and CatBoost."""
    key = "int64" if "int64s" in labels else "string"
    text = f"first, places = TopK<axis = 1>(x, two) y = ai.onnx.ml.ZipMap<{labels}>(first)"
    held = models.model(f"float[batch, 4] x, int64[1] two => seq(map({key}, float)) y", text)

    [output] = opened(held).get_outputs()

    assert output.shape[1:] == [2]


def test_a_model_that_only_tells_of_such_a_node_stays_as_it_is() -> None:
    """In its documentation, for example."""
    held = onnx.load_from_string(models.identity("FP32"))
    held.doc_string = "ZipMap"
    [output] = opened(held.SerializeToString()).get_outputs()
    assert output.type == "tensor(float)"


def test_what_cannot_be_changed_is_shown_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large model, one with weights in other files, and no model at all: the session says what is wrong with it."""
    content = models.class_map()
    assert opened(content).get_outputs()[0].type == "tensor(float)"
    with pytest.raises(Exception, match="cannot load the model"):
        opened(content[:-9])
    monkeypatch.setattr(model_file, "LARGEST_CHANGED", len(content) - 1)
    assert opened(content).get_outputs()[0].type == "seq(map(int64,tensor(float)))"
