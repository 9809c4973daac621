"""The demo's data and classifier."""

from __future__ import annotations

import json

import numpy as np
import onnxruntime

from worker.tools.demo.digits import MODEL, held_out, requests


def test_the_shipped_classifier_names_97_of_100_unseen_digits() -> None:
    """Its outputs are probabilities that sum to one."""
    session = onnxruntime.InferenceSession(MODEL.read_bytes(), providers=["CPUExecutionProvider"])
    images = held_out()

    [probabilities] = session.run(["probabilities"], {"pixels": images.pixels})

    assert (probabilities.argmax(axis=1) == images.labels).mean() >= 0.97
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)


def test_a_request_is_an_image_as_json() -> None:
    """The numbers are exact enough for the classifier."""
    images = held_out()

    asked = requests(images)

    assert len(asked) == len(images.labels)
    (pixels,) = json.loads(asked[3].value)["inputs"]
    np.testing.assert_allclose(pixels["data"], images.pixels[3], atol=1e-4)
