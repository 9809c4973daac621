"""ONNX Runtime's failures in our words: who is at fault, in one line without C++ or a request's content."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from tests import models
from tests.unit.inference.loading import arrays, loaded
from worker.core.failures import Code, ModelBroken, RunFailure
from worker.inference.onnxruntime_errors import LONGEST_MESSAGE, load_failure, readable, run_failure
from worker.inference.session import CPU, RUN_ERRORS


def test_a_value_that_the_model_fails_on_is_a_failure_and_no_exception(tmp_path: Path) -> None:
    """The message names the node and the complaint; the log gets no number from a request."""
    model = loaded(models.lookup(rows=10), tmp_path)

    failure = model.run({"id": np.array([[3], [99]])})

    assert isinstance(failure, RunFailure)
    assert failure.code is Code.INVALID_ARGUMENT
    assert failure.message.startswith("Gather: indices element out of data bounds, idx=99 ")
    assert failure.for_log.startswith("Gather: indices element out of data bounds, idx=… ")
    assert "99" not in failure.for_log
    assert arrays(model.run({"id": np.array([[3]])}))[0].tolist() == [[[6.0, 7.0]]]


@pytest.mark.parametrize(
    ("model", "feeds", "says"),
    [
        (models.categories(), {"city": np.array([["Bergen"]], object)}, "OneHotEncoder: Unknown Category"),
        (models.quotient(), {"a": np.array([[1]]), "b": np.array([[0]])}, "Div: Compute Integer division by zero"),
        (models.parse_number(), {"text": np.array([["ten"]], object)}, "Cast: stod"),
    ],
)
def test_a_value_that_an_operator_does_not_take_is_the_requests_fault(
    model: bytes, feeds: Mapping[str, Any], says: str
) -> None:
    """The answer's code says so. Any other failure is the model's or the device's."""
    session = ort.InferenceSession(model, providers=[CPU])

    with pytest.raises(RUN_ERRORS) as raised:
        session.run(None, feeds)

    assert run_failure(raised.value).code is Code.INVALID_ARGUMENT
    assert says in run_failure(raised.value).message


def test_feeds_that_the_model_does_not_take_are_a_failure_too(tmp_path: Path) -> None:
    """The session's exceptions are returned as values; text that is no Unicode fails before it."""
    model, texts = loaded(models.mlp(), tmp_path), loaded(models.identity("BYTES", (1,)), tmp_path)

    failures = [model.run({}), model.run({"x": np.zeros((1, 9), np.float32)}), model.run({"x": np.zeros((1, 4))})]
    failures.append(texts.run({"x": np.array([["\ud800"]], dtype=object)}))

    assert all(isinstance(failure, RunFailure) for failure in failures)


NO_MEMORY_ON_CPU = (
    "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Expand node. Name:'' "
    "Status Message: /onnxruntime_src/onnxruntime/core/framework/bfc_arena.cc:360 void* onnxruntime::BFCArena::"
    "AllocateRawInternal(size_t, bool, onnxruntime::Stream*) Failed to allocate memory for requested buffer of size 4\n"
)
AT_ITS_LIMIT = (
    "Error in execution: Non-zero status code returned while running Identity node. Name:'' Status Message: "
    "/onnxruntime_src/onnxruntime/core/framework/bfc_arena.cc:360 void* onnxruntime::BFCArena::AllocateRawInternal("
    "size_t, bool, onnxruntime::Stream*) Available memory of 3145728 is smaller than requested bytes of 33554432\n"
)


@pytest.mark.parametrize(
    "text",
    [
        NO_MEMORY_ON_CPU,
        AT_ITS_LIMIT,
        "CUDA failure 2: out of memory ; GPU=0 ; hostname=gpu-7 ; file=/src/x.cc ; line=12 ; expr=cudaMalloc(&p, n)",
        "CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED ; GPU=0 ; hostname=gpu-7",
        "CUDNN failure 4004: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ; GPU=0 ; hostname=gpu-7",
    ],
)
def test_no_memory_is_told_apart_from_poison(text: str) -> None:
    """Smaller batches may still run; the message has no C++ and no host names."""
    failure = run_failure(RuntimeError(text))

    assert failure.code is Code.RESOURCE_EXHAUSTED
    assert "::" not in failure.message
    assert "gpu-7" not in failure.message
    assert load_failure(RuntimeError(text)).startswith("there is not enough memory for it")


@pytest.mark.parametrize("code", [700, 719, 810, 911, 999])
def test_a_dead_cuda_context_ends_the_worker(code: int) -> None:
    """No later run in this process can succeed, so no request gets an error for it."""
    text = f"CUDA failure {code}: an illegal memory access was encountered ; GPU=0 ; hostname=gpu-7"

    with pytest.raises(ModelBroken, match="the device is lost: CUDA failure") as broken:
        run_failure(RuntimeError(text))

    assert "gpu-7" not in str(broken.value)


OLD_DRIVER = (
    "[ONNXRuntimeError] : 1 : FAIL : /onnxruntime_src/include/onnxruntime/core/framework/provider_options_utils.h:187 "
    'Parse Failed to parse provider option "device_id": CUDA failure 35: CUDA driver version is insufficient for CUDA '
    "runtime version ; GPU=0 ; hostname=gpu-7 ; file=/x/cuda_call.cc ; line=70 ; expr=cudaGetDeviceCount(&n); "
)
THROWN = (
    "[ONNXRuntimeError] : 1 : FAIL : /onnxruntime_src/onnxruntime/core/providers/cuda/cuda_call.cc:133 "
    "std::conditional_t<THRW, void, common::Status> onnxruntime::CudaCall(ERRTYPE, const char*, int) [with ERRTYPE = "
    "cudaError; bool THRW = true] CUDA failure 804: forward compatibility was attempted on non supported HW ; GPU=0 ; "
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (OLD_DRIVER, "CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version"),
        (THROWN, "CUDA failure 804: forward compatibility was attempted on non supported HW"),
    ],
)
def test_a_device_s_failure_is_told_without_the_c_around_it(text: str, told: str) -> None:
    """The operator can look up the part between signatures, options and expressions."""
    assert readable(RuntimeError(text)) == told


def test_a_failure_quotes_no_payload_and_stays_one_line() -> None:
    """Text in quotation marks may be a piece of a request."""
    text = (
        "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running Cast node. "
        "Name:'to_number' Status Message: cannot read 'my secret' or \"another\"\n" + "x" * 500
    )

    message = run_failure(RuntimeError(text)).message

    assert message.startswith("Cast 'to_number': cannot read '…' or '…' xxx")
    assert len(message) == 200


def test_a_long_text_costs_no_more_than_a_short_one() -> None:
    """A function may quote a whole record in what it raises."""
    began = time.process_time()
    told = readable(ValueError("x" * 1_000_000))
    assert time.process_time() - began < 2
    assert (len(told), told[-1]) == (LONGEST_MESSAGE, "…")
