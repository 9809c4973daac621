"""ONNX Runtime puts all nodes of the networks for a GPU on CUDA. No kernel runs here.

A node without a CUDA kernel goes to the CPU without a word, and its tensors are copied there and back in each run.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import onnxruntime as ort

from tests.gpu.nets import NETS
from tests.models import gru
from worker.inference.device import _session
from worker.inference.model_file import LoadableModel
from worker.inference.session import CPU, CUDA, RUN_ERRORS, operators

LEFT = "assigned to the default CPU EP"


def refusal(model: bytes) -> str:
    """ONNX Runtime's error when nothing may be left to the CPU; empty where it opens a session."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    try:
        ort.InferenceSession(model, options, providers=["CUDAExecutionProvider"])
    except RUN_ERRORS as error:
        return str(error)
    return ""


def left_to_cpu(model: bytes) -> Sequence[str]:
    """The operator of each node that is left to the CPU."""
    return operators(_session(LoadableModel(model, is_ort=False), [CUDA, CPU], 1), CPU)


def test_a_gru_that_resets_before_its_product_is_left_to_the_cpu_and_named() -> None:
    """cuDNN has only the other kind, which PyTorch exports. `docs/models.md` says so."""
    model = gru(resets_after=0)

    assert LEFT in refusal(model)
    assert left_to_cpu(model).count("GRU") == 1


def test_pooling_of_opset_22_is_left_to_the_cpu_and_named() -> None:
    """ONNX Runtime 1.31 has no such kernel. `docs/models.md` says so."""
    made = onnx.load_from_string(NETS["ResNet-50"].build())
    made.opset_import[0].version = 22
    model = made.SerializeToString()

    assert LEFT in refusal(model)
    assert set(left_to_cpu(model)) == {"MaxPool"}
