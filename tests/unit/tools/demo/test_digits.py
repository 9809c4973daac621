"""The demo's data and classifier."""

from __future__ import annotations

import json

import numpy as np
import onnxruntime

from worker.tools.demo.digits import MODEL, held_out, learned, requests


def test_no_image_is_both_learned_and_held_out() -> None:
    """The demo's accuracy is about images that the classifier has never seen."""
    seen = {row.tobytes() for row in learned().pixels}

    unseen = held_out()

    assert len(unseen.labels) == 360
    assert len(np.unique(unseen.labels)) == 10
    assert not any(row.tobytes() in seen for row in unseen.pixels)


def test_the_shipped_classifier_names_97_of_100_unseen_digits() -> None:
    """And says so as probabilities that sum to one."""
    session = onnxruntime.InferenceSession(MODEL.read_bytes(), providers=["CPUExecutionProvider"])
    images = held_out()

    [probabilities] = session.run(["probabilities"], {"pixels": images.pixels})

    assert (probabilities.argmax(axis=1) == images.labels).mean() >= 0.97
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)


def test_a_request_is_an_image_as_json() -> None:
    """Close enough that the classifier sees the image."""
    images = held_out()

    asked = requests(images)

    assert len(asked) == len(images.labels)
    (pixels,) = json.loads(asked[3].value)["inputs"]
    np.testing.assert_allclose(pixels["data"], images.pixels[3], atol=1e-4)
