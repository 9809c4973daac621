"""The BERT of the tests computes what BERT computes."""

from __future__ import annotations

import numpy as np
import onnxruntime

from tests.bert import bert, forward, random_weights


def test_the_graph_equals_numpy() -> None:
    """The graph and NumPy agree, and padding changes nothing."""
    weights = random_weights()
    ids = np.random.default_rng(1).integers(4, 20, (3, 7))
    mask = np.array([[1] * 7, [1] * 4 + [0] * 3, [1] + [0] * 6])
    session = onnxruntime.InferenceSession(bert(weights, 4), providers=["CPUExecutionProvider"])

    (found,) = session.run(None, {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)})

    alone = forward(weights, 4, ids[1:2, :4], mask[1:2, :4])
    assert np.allclose(found, forward(weights, 4, ids, mask), atol=1e-5)
    assert np.allclose(found[1:2, :4], alone, atol=1e-5)
