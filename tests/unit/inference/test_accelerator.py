"""What is different on CUDA before the first batch: the warm-up and the providers' options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnxruntime as ort
import pytest

from tests import models
from worker.core.failures import BadConfiguration
from worker.inference import load
from worker.inference.model_loading import row_counts
from worker.inference.running import device
from worker.inference.running.device import (
    CPU,
    CUDA,
    TENSORRT,
    Device,
    Opened,
    check_options,
    is_accelerated,
)
from worker.settings import ModelSettings
from worker.settings import load as load_settings

MINIMUM = {
    "WORKER_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:9092",
    "WORKER_KAFKA__REQUEST_TOPICS": "requests",
    "WORKER_KAFKA__RESPONSE_TOPIC": "answers",
    "WORKER_KAFKA__GROUP_ID": "group",
    "WORKER_MODEL__PATH": "model.onnx",
}
TENSORRT_OPTIONS = """{"TensorrtExecutionProvider": {
    "trt_engine_cache_enable": true, "trt_engine_cache_path": "/Cache/Engines", "trt_fp16_enable": "True",
    "trt_profile_min_shapes": "a:1x256,b:1x2", "trt_profile_opt_shapes": "a:32x256,b:32x2",
    "trt_profile_max_shapes": "a:64x256,b:64x2"}, "CUDAExecutionProvider": {"gpu_mem_limit": 1073741824}}"""


class Session:
    """A session as far as it says what it runs on."""

    def __init__(self, **options: dict[str, str]) -> None:
        self._options = options

    def get_providers(self) -> list[str]:
        return [*self._options, CPU]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        return self._options


class Opening:
    """Notes the providers that a session is opened with, on a machine where ONNX Runtime has all of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.providers: list[Any] = []
        monkeypatch.setattr(ort, "get_available_providers", lambda: [TENSORRT, CUDA, CPU])
        monkeypatch.setattr(device, "_has_driver", lambda: True)
        monkeypatch.setattr(device, "_session_or_cause", self._open)

    def _open(self, _graph: bytes, providers: list[Any], _threads: int) -> ort.InferenceSession:
        self.providers += providers
        return plain()


def on(session: Any) -> Opened:
    return Opened(session, Device("there", "it works"))


def plain() -> ort.InferenceSession:
    return ort.InferenceSession(models.mlp(), providers=[CPU])


@pytest.mark.parametrize("provider", [CUDA, TENSORRT])
def test_a_session_on_a_gpu_says_so(provider: str) -> None:
    """CUDA by itself, or under TensorRT: it is to be kept busy, and not waited for."""
    session: Any = Session(**{provider: {}})

    assert is_accelerated(session)
    assert not is_accelerated(plain())


@pytest.mark.parametrize(
    ("largest", "counts"), [(1, {1, 2}), (2, {1, 2}), (32, {1, 2, 4, 8, 16, 32}), (100, {1, 2, 4, 8, 16, 32, 64, 100})]
)
def test_on_cuda_the_warm_up_runs_the_powers_of_two(largest: int, counts: set[int]) -> None:
    """Kernels are chosen and engines built by the number of rows: all before the worker is ready."""
    assert set(row_counts(on(Session(**{TENSORRT: {}, CUDA: {}})), largest)) == counts


def test_on_the_cpu_the_warm_up_is_short() -> None:
    """Nothing is chosen there."""
    assert row_counts(on(plain()), 100) == (1, 2, 100)


def test_options_reach_their_provider_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the providers; a number is text, a truth value `true`, and a path keeps its case."""
    opening = Opening(monkeypatch)
    settings = load_settings(
        None,
        MINIMUM
        | {
            "WORKER_MODEL__PATH": str(models.save(models.mlp(), tmp_path)),
            "WORKER_MODEL__PROVIDERS": f"{TENSORRT},{CUDA},{CPU}",
            "WORKER_MODEL__PROVIDER_OPTIONS": TENSORRT_OPTIONS,
        },
    )

    load(settings.model, max_batch_size=4)

    tensorrt = {
        "trt_engine_cache_enable": "true",
        "trt_engine_cache_path": "/Cache/Engines",
        "trt_fp16_enable": "True",
        "trt_profile_min_shapes": "a:1x256,b:1x2",
        "trt_profile_opt_shapes": "a:32x256,b:32x2",
        "trt_profile_max_shapes": "a:64x256,b:64x2",
    }
    assert opening.providers == [(TENSORRT, tensorrt), (CUDA, {"gpu_mem_limit": "1073741824"}), (CPU, {})]


def test_options_of_cuda_hold_where_only_the_device_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device's number stays the operator's other word."""
    opening = Opening(monkeypatch)
    options = {f"{CUDA}.cudnn_conv_algo_search": "HEURISTIC"}

    load(
        ModelSettings(path=models.save(models.mlp(), tmp_path), device="cuda:1", provider_options=options),
        max_batch_size=4,
    )

    assert opening.providers == [(CUDA, {"cudnn_conv_algo_search": "HEURISTIC", "device_id": "1"}), CPU]


def test_a_limit_of_memory_is_an_option_of_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In ONNX Runtime's words, beside those that are passed on."""
    opening = Opening(monkeypatch)
    path = models.save(models.mlp(), tmp_path)
    options = {f"{CUDA}.cudnn_conv_algo_search": "HEURISTIC"}
    limited = ModelSettings(path=path, gpu_mem_limit=2**31, provider_options=options)

    load(limited, max_batch_size=4)

    memory = {"gpu_mem_limit": "2147483648"}
    assert opening.providers == [
        (CUDA, {"cudnn_conv_algo_search": "HEURISTIC", **memory, "device_id": "0"}),
        CPU,
    ]


def test_memory_settings_mean_nothing_where_auto_ends_on_the_cpu(tmp_path: Path) -> None:
    """The same settings serve machines with and without a GPU."""
    settings = ModelSettings(path=models.save(models.mlp(), tmp_path), gpu_mem_limit=2**31)

    assert load(settings, max_batch_size=4).device.name == "cpu"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({f"{TENSORRT}.trt_fp16_enable": "1"}, "trt_fp16_enable has no effect, for the model runs on CUDA"),
        ({"gpu_mem_limit": "1"}, "gpu_mem_limit has no effect"),
        ({f"{CUDA}.enable_cuda_graph": "1"}, "captured for one number of rows"),
        ({f"{CUDA}.device_id": "1"}, "no effect beside WORKER_MODEL__DEVICE=cuda:0: say WORKER_MODEL__DEVICE=cuda:1"),
    ],
)
def test_options_without_effect_or_against_batching_are_refused(options: dict[str, str], words: str) -> None:
    """A typing error must not end as a slow model, nor a captured run as the answer to another request."""
    with pytest.raises(BadConfiguration, match=words):
        check_options(options, "cuda:0", ())


def test_a_refused_option_is_told_by_load(tmp_path: Path) -> None:
    """In one line, before a session is opened."""
    settings = ModelSettings(
        path=models.save(models.mlp(), tmp_path), device="cpu", provider_options={f"{CUDA}.gpu_mem_limit": "1"}
    )

    with pytest.raises(BadConfiguration, match=r"model\.onnx: WORKER_MODEL__PROVIDER_OPTIONS: .* runs on CPUExec"):
        load(settings, max_batch_size=4)


def test_a_cuda_graph_that_is_turned_off_is_allowed() -> None:
    """Saying so explicitly is no mistake."""
    options = {f"{CUDA}.enable_cuda_graph": "0", f"{TENSORRT}.trt_cuda_graph_enable": "false"}

    check_options(options, "auto", (TENSORRT, CUDA))
