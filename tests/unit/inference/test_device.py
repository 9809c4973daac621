"""The choice of the device: what was asked for is taken or refused with the cause, and `auto` says why."""

from pathlib import Path

import onnxruntime as ort
import pytest

from tests import models
from worker.core.failures import BadConfiguration
from worker.inference import load
from worker.inference.running import device
from worker.inference.running.device import CPU, CUDA, TENSORRT, Opened, Unusable, _refused, left_to_cpu
from worker.inference.running.provider_complaints import cause_in
from worker.settings import ModelSettings

FAILED_LOAD = (
    "\x1b[1;31m2026-11-21 09:25:57.2 [E:onnxruntime:Default, provider_bridge_ort.cc:2458 operator()] "
    "/onnxruntime_src/x.cc:2043 onnxruntime::Provider& onnxruntime::ProviderLibrary::Get() [ONNXRuntimeError] : 1 : "
    "FAIL : Failed to load library /site/libonnxruntime_providers_cuda.so with error: libcublasLt.so.13: cannot open "
    "shared object file: No such file or directory\n\x1b[m\n"
    "\x1b[0;93m2026-11-21 [W:onnxruntime:Default, x.cc:1295 Create] Failed to create CUDAExecutionProvider. "
    "Require cuDNN 9.* and CUDA 13.*. Please install all dependencies\x1b[m\n"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return models.save(models.mlp(), tmp_path)


def never_opened(*_: object) -> Opened:
    raise Unusable("there is none")


def test_auto_falls_back_to_the_cpu_and_says_why(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is one line for the log."""
    monkeypatch.setattr(device, "_has_driver", lambda: False)

    chosen = load(ModelSettings(path=path), max_batch_size=4).device

    assert chosen.name == "cpu"
    assert "auto" in chosen.reason
    assert "CUDA" in chosen.reason
    assert "\n" not in chosen.reason


def test_cuda_without_a_driver_is_refused_with_cause_and_cure(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that was set to use the GPU never serves from the CPU."""
    monkeypatch.setattr(device, "_has_driver", lambda: False)

    with pytest.raises(
        BadConfiguration, match=r"WORKER_MODEL__DEVICE is cuda:1, but this .*(NVIDIA driver|without CUDA)"
    ) as refused:
        load(ModelSettings(path=path, device="cuda:1"), max_batch_size=4)

    assert "WORKER_MODEL__DEVICE=cpu" in str(refused.value)


def test_the_cpu_can_be_asked_for(path: Path) -> None:
    """Then nothing else is tried."""
    assert load(ModelSettings(path=path, device="cpu"), max_batch_size=4).device.reason == "WORKER_MODEL__DEVICE is cpu"


def test_threads_do_not_spin_when_nothing_runs(path: Path) -> None:
    """Two of them took half a core at ten inferences a second."""
    session = device.open_cpu(path.read_bytes(), 2, "a test").session

    assert session.get_session_options().get_session_config_entry("session.force_spinning_stop") == "1"


def test_nodes_are_counted_by_operator_where_the_cpu_has_them(path: Path) -> None:
    """On a CPU these are all of them; a model there has nothing that a GPU was to run."""
    opened = device.open_cpu(path.read_bytes(), 1, "a test")

    assert left_to_cpu(opened.session) == {"Gemm": 2, "Relu": 1}
    assert load(ModelSettings(path=path, device="cpu"), max_batch_size=4).left_to_cpu == {}


def test_a_runtime_that_does_not_tell_where_nodes_are_is_no_reason_to_fail(path: Path) -> None:
    """One that was not asked to remember refuses; before 1.24 there is no such question."""
    assert left_to_cpu(ort.InferenceSession(str(path), providers=[CPU])) == {}


def test_a_provider_that_does_not_exist_is_refused_with_the_list(path: Path) -> None:
    """A typing error must not end on the CPU."""
    with pytest.raises(BadConfiguration, match=r"has no CudaExecutionProvider; it has .*CPUExecutionProvider"):
        load(ModelSettings(path=path, providers=("CudaExecutionProvider",)), max_batch_size=4)


def test_providers_are_used_as_given(path: Path) -> None:
    """They replace the device."""
    model = load(ModelSettings(path=path, providers=(CPU,), device="cuda"), max_batch_size=4)

    assert model.device.name == CPU


@pytest.mark.skipif(CUDA not in ort.get_available_providers(), reason="this ONNX Runtime is built without CUDA")
@pytest.mark.skipif(device._has_driver(), reason="this machine has an NVIDIA driver")
def test_a_provider_that_does_not_load_is_refused_with_the_runtime_s_own_cause(
    path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """And nothing of it is written past the log."""
    with pytest.raises(BadConfiguration, match=r"CUDAExecutionProvider cannot be used: .*lib\S+ is not installed"):
        load(ModelSettings(path=path, providers=(CUDA, CPU)), max_batch_size=4)

    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("providers", "cure"), [((CUDA,), "Install what is missing"), ((TENSORRT, CUDA), "TensorRT (which none of these")]
)
def test_providers_that_cannot_be_loaded_are_refused_by_name_with_the_cure(
    path: Path, providers: tuple[str, ...], cure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library's name alone says neither who wants it nor what to do."""

    def fail(*_: object) -> ort.InferenceSession:
        raise RuntimeError("libcublasLt.so.13 is not there")

    monkeypatch.setattr(ort, "get_available_providers", lambda: [TENSORRT, CUDA, CPU])
    monkeypatch.setattr(ort, "preload_dlls", lambda: None, raising=False)
    monkeypatch.setattr(device, "_session", fail)

    with pytest.raises(BadConfiguration) as refused:
        load(ModelSettings(path=path, providers=providers), max_batch_size=4)

    assert f"WORKER_MODEL__PROVIDERS is {','.join(providers)}, but libcublasLt.so.13 is not there. " in str(
        refused.value
    )
    assert cure in str(refused.value)
    assert "or leave out the provider that cannot be used here" in str(refused.value)


def test_the_cause_names_the_library_and_the_versions_needed() -> None:
    """Both stand somewhere in what ONNX Runtime writes."""
    assert cause_in(FAILED_LOAD) == "libcublasLt.so.13 is not installed (it needs CUDA 13.* and cuDNN 9.*)"


def test_a_library_that_is_missing_is_named_also_where_the_exception_does_not() -> None:
    """TensorRT's says what page to read; which library it was stands on standard error alone."""
    failure = RuntimeError("Please install TensorRT libraries as mentioned in the GPU requirements page")
    complaints = "error: libnvinfer.so.10: cannot open shared object file: No such file or directory\n"

    assert str(_refused(failure, complaints)) == "libnvinfer.so.10 is not installed"
    assert "Please install TensorRT" in str(_refused(failure, ""))


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (
            'Unknown provider option: "gpu_memory_limit".',
            'WORKER_MODEL__PROVIDER_OPTIONS: Unknown provider option: "gpu',
        ),
        ('External data path does not exist: "w.bin"', "its weights lie in another file, and w.bin is missing"),
        (
            "/src/bfc_arena.cc:359 Failed to allocate memory for requested buffer of size 3221225472",
            "there is not enough memory for it (Failed to allocate memory for requested buffer of size 3221225472)",
        ),
    ],
)
def test_what_is_no_fault_of_the_device_is_not_put_down_to_it(failure: str, told: str) -> None:
    """Installing it would not help."""
    refusal = _refused(RuntimeError(failure), "")

    assert isinstance(refusal, BadConfiguration)
    assert str(refusal).startswith(told)


@pytest.mark.parametrize(
    ("complaints", "cause"),
    [
        ("", "ONNX Runtime does not say why"),
        ("noise\nE: x [ONNXRuntimeError] : 11 : EP_FAIL : no device 3\n", "11 : EP_FAIL : no device 3"),
        ("only\nnoise", "only noise"),
    ],
)
def test_an_unknown_complaint_is_passed_on(complaints: str, cause: str) -> None:
    """In one line."""
    assert cause_in(complaints) == cause
