"""The choice of the device: a wish is obeyed or refused with the cause, and `auto` says why it chose."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import onnxruntime as ort
import pytest

from tests import models
from worker.core.failures import BadConfiguration
from worker.inference import device
from worker.inference.device import check_options, open_cpu
from worker.inference.facts import Device
from worker.inference.model_file import LoadableModel
from worker.inference.model_loading import load, row_counts
from worker.inference.session import CPU, CUDA, TENSORRT, Opened, operators
from worker.settings import ModelSettings


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return models.save(models.mlp(), tmp_path)


def test_auto_falls_back_to_the_cpu_and_says_why(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is one line for the log."""
    monkeypatch.setattr(device, "_has_driver", lambda: False)

    chosen = load(ModelSettings(path=path), max_batch_size=4).device

    assert chosen.name == "cpu"
    assert "auto" in chosen.reason
    assert "CUDA" in chosen.reason
    assert "\n" not in chosen.reason


def test_cuda_without_a_driver_is_refused_with_cause_and_cure(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is set to use the GPU never serves from the CPU."""
    monkeypatch.setattr(device, "_has_driver", lambda: False)

    with pytest.raises(
        BadConfiguration, match=r"WORKER_MODEL__DEVICE is cuda:1, but this .*(NVIDIA driver|without CUDA)"
    ) as refused:
        load(ModelSettings(path=path, device="cuda:1"), max_batch_size=4)

    assert "WORKER_MODEL__DEVICE=cpu" in str(refused.value)


def test_nodes_are_counted_where_the_cpu_has_them(path: Path) -> None:
    """On a CPU these are all nodes, and none of them was meant for a GPU."""
    session = open_cpu(LoadableModel(str(path), is_ort=False), 1, "a test").session

    assert Counter(operators(session, CPU)) == {"Gemm": 2, "Relu": 1}
    assert operators(session, CUDA) == []
    assert load(ModelSettings(path=path, device="cpu"), max_batch_size=4).left_to_cpu == {}


def test_a_runtime_that_does_not_tell_where_nodes_are_is_no_reason_to_fail(path: Path) -> None:
    """A session that was not asked to record it refuses; ONNX Runtime before 1.24 has no such function."""
    nothing: Any = object()

    assert operators(ort.InferenceSession(str(path), providers=[CPU])) == ()
    assert operators(nothing) == ()


def test_a_provider_that_does_not_exist_is_refused_with_the_list(path: Path) -> None:
    """A typing error must not end on the CPU."""
    with pytest.raises(BadConfiguration, match=r"has no CudaExecutionProvider; it has .*CPUExecutionProvider"):
        load(ModelSettings(path=path, providers=("CudaExecutionProvider",)), max_batch_size=4)


def test_providers_are_used_as_given(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They replace the device, and options reach them unchanged, in their order."""
    opening = Opening(monkeypatch)
    options = {f"{TENSORRT}.trt_engine_cache_path": "/Cache", f"{CUDA}.enable_cuda_graph": "0"}

    load(ModelSettings(path=path, providers=(TENSORRT, CUDA), provider_options=options, device="cpu"), max_batch_size=4)

    assert opening.providers == [(TENSORRT, {"trt_engine_cache_path": "/Cache"}), (CUDA, {"enable_cuda_graph": "0"})]


@pytest.mark.skipif(CUDA not in ort.get_available_providers(), reason="this ONNX Runtime is built without CUDA")
@pytest.mark.skipif(device._has_driver(), reason="this machine has an NVIDIA driver")
def test_a_provider_that_does_not_load_is_refused(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The runtime's own cause goes to standard error, so it does not mix with a command's answer."""
    with pytest.raises(BadConfiguration, match=r"CUDAExecutionProvider cannot be used; .* standard error"):
        load(ModelSettings(path=path, providers=(CUDA, CPU)), max_batch_size=4)

    written = capfd.readouterr()
    assert written.out == ""
    assert "cannot open shared object file" in written.err


@pytest.mark.parametrize("providers", [(CUDA,), (TENSORRT, CUDA)])
def test_providers_that_cannot_be_loaded_are_refused_by_name_with_the_cure(
    path: Path, providers: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library's name alone says neither who needs it nor what to do."""

    session = device._session

    def fail(loadable: LoadableModel, providers: list[Any], threads: int) -> ort.InferenceSession:
        if providers == [CPU]:
            return session(loadable, providers, threads)
        raise RuntimeError("libcublasLt.so.13 is not there")

    monkeypatch.setattr(ort, "get_available_providers", lambda: [TENSORRT, CUDA, CPU])
    monkeypatch.setattr(ort, "preload_dlls", lambda: None, raising=False)
    monkeypatch.setattr(device, "_session", fail)

    with pytest.raises(BadConfiguration) as refused:
        load(ModelSettings(path=path, providers=providers), max_batch_size=4)

    assert f"WORKER_MODEL__PROVIDERS is {','.join(providers)}, but libcublasLt.so.13 is not there. " in str(
        refused.value
    )
    assert "Install what is missing" in str(refused.value)


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (
            'Unknown provider option: "gpu_memory_limit".',
            "WORKER_MODEL__PROVIDER_OPTIONS: Unknown provider option",
        ),
        ("Failed to allocate memory for requested buffer of size 3221225472", r"not enough memory for it \(Failed to"),
        (
            "External data path does not exist: w.bin",
            "cannot load the model: External data path",
        ),
    ],
)
def test_what_is_no_fault_of_the_device_is_not_put_down_to_it(
    failure: str, told: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installation would not help."""

    def fail(*_: object) -> ort.InferenceSession:
        raise RuntimeError(failure)

    monkeypatch.setattr(ort, "get_available_providers", lambda: [CUDA, CPU])
    monkeypatch.setattr(ort, "preload_dlls", lambda: None, raising=False)
    monkeypatch.setattr(device, "_session", fail)

    with pytest.raises(BadConfiguration, match=told):
        load(ModelSettings(path=path, providers=(CUDA,)), max_batch_size=4)


# ---- CUDA before the first batch: the warm-up and options -----------------------------------------------------------


class Session:
    """A fake session that only tells its providers."""

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


@pytest.mark.parametrize(
    ("largest", "counts"), [(1, {1, 2}), (2, {1, 2}), (32, {1, 2, 4, 8, 16, 32}), (100, {1, 2, 4, 8, 16, 32, 64, 100})]
)
def test_on_cuda_the_warm_up_runs_the_powers_of_two(largest: int, counts: set[int]) -> None:
    """The number of rows decides the choice of kernels and engines: all are made before the worker is ready."""
    assert set(row_counts(on(Session(**{TENSORRT: {}, CUDA: {}})), largest)) == counts
    assert row_counts(on(plain()), 100) == (1, 2, 100)  # nothing is chosen on the CPU


def test_memory_settings_are_options_of_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They get ONNX Runtime's names, and join the options that are passed on."""
    opening = Opening(monkeypatch)
    path = models.save(models.mlp(), tmp_path)
    options = {f"{CUDA}.cudnn_conv_algo_search": "HEURISTIC"}
    limited = ModelSettings(path=path, device="cuda:1", gpu_mem_limit=2**31, provider_options=options)

    load(limited, max_batch_size=4)

    memory = {"gpu_mem_limit": "2147483648"}
    assert opening.providers == [
        (CUDA, {"cudnn_conv_algo_search": "HEURISTIC", **memory, "device_id": "1"}),
        CPU,
    ]


def test_memory_settings_mean_nothing_where_auto_ends_on_the_cpu(path: Path) -> None:
    """One set of settings serves machines with and without a GPU; a worker set to the CPU refuses them."""
    assert load(ModelSettings(path=path, gpu_mem_limit=2**31), max_batch_size=4).device.name == "cpu"
    with pytest.raises(BadConfiguration, match=r"model\.onnx: WORKER_MODEL__PROVIDER_OPTIONS: .* runs on CPUExec"):
        load(ModelSettings(path=path, device="cpu", gpu_mem_limit=2**31), max_batch_size=4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({f"{TENSORRT}.trt_fp16_enable": "1"}, "trt_fp16_enable has no effect, for the model runs on CUDA"),
        ({"gpu_mem_limit": "1"}, "gpu_mem_limit has no effect"),
        ({f"{CUDA}.enable_cuda_graph": "1"}, "captured for one number of rows"),
    ],
)
def test_options_without_effect_or_against_batching_are_refused(options: dict[str, str], words: str) -> None:
    """A typing error must not become a slow model, nor a captured run the answer to another request."""
    with pytest.raises(BadConfiguration, match=words):
        check_options(options, "cuda:0", ())
