"""The demo's data and classifier."""

from __future__ import annotations

import numpy as np
import onnxruntime

from worker.core.records import Partition, Record
from worker.tools.demo.digits import MODEL, guess, held_out, learned, requests


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


def test_a_request_is_an_images_row_and_an_answer_is_read_as_a_digit() -> None:
    """The likeliest of ten, with how sure the worker is; an error is no digit."""
    images = held_out()
    chances = np.array([0.05, 0.8, *[0.01875] * 8], "<f4").tobytes()

    asked, answered = requests(images), guess(7, answer(chances, b"ok"))

    assert len(asked) == len(images.labels)
    assert np.frombuffer(asked[3].value, "<f4").tolist() == images.pixels[3].tolist()
    assert answered[:2] == (7, 1)
    assert round(answered.confidence, 3) == 0.8
    assert guess(8, answer(b'{"error": "odd"}', b"error")).digit is None


def answer(value: bytes, status: bytes) -> Record:
    """From the worker."""
    return Record(Partition("answers", 0), 0, b"key", value, [("status", status)], None)
