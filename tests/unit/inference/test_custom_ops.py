"""Libraries of operators: loaded by path and digest, refused otherwise."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from pydantic import ValidationError

from tests import models
from worker.core.failures import BadConfiguration, RunFailure
from worker.inference.model_loading import inspect, load
from worker.settings import ModelSettings

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with the operator `test.ops.Twice`."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    built = tmp_path_factory.mktemp("ops") / "twice.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-w", "-o", built, HERE / "twice.c"], check=True)  # noqa: S603  # ours
    return built


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A model that needs the operator."""
    node = helper.make_node("Twice", ["x"], ["y"], domain="test.ops")
    graph = onnx.load_from_string(models.model("float[batch, 4] x => float[batch, 4] y", nodes=[node]))
    graph.opset_import.add(domain="test.ops", version=1)
    return models.save(graph.SerializeToString(), tmp_path)


def named(library: Path) -> str:
    return f"{library}@{hashlib.sha256(library.read_bytes()).hexdigest().upper()}"


def refusal(path: Path, *libraries: str) -> str:
    with pytest.raises(BadConfiguration) as refused:
        load(ModelSettings(path=path, device="cpu", custom_ops=libraries), max_batch_size=2)
    return str(refused.value)


def test_a_library_that_is_named(path: Path, library: Path) -> None:
    """Its operators run, and the model can be inspected."""
    settings = ModelSettings(path=path, device="cpu", custom_ops=(named(library),))

    outputs = load(settings, max_batch_size=2).run({"x": np.ones((2, 4), "f4")})

    assert not isinstance(outputs, RunFailure)
    np.testing.assert_array_equal(outputs[0], np.full((2, 4), 2.0))
    assert str(inspect(settings).signature.inputs[0]) == "x FP32[batch, 4]"


def test_a_path_without_a_folder(path: Path, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a file in the current folder, as any path, and not a library of the system."""
    monkeypatch.chdir(library.parent)
    settings = ModelSettings(path=path, device="cpu", custom_ops=(named(Path(library.name)),))

    assert load(settings, max_batch_size=2).warmed_up_at


def test_an_operator_without_its_library(path: Path) -> None:
    """The refusal names the setting."""
    assert "Twice(-1) is not a registered function/op; WORKER_MODEL__CUSTOM_OPS names the library" in refusal(path)


def test_another_library_than_the_one_named(path: Path, library: Path, tmp_path: Path) -> None:
    """It is not loaded."""
    other = tmp_path / "other.so"
    other.write_bytes(library.read_bytes() + b"\0")

    message = refusal(path, f"{other}@{hashlib.sha256(library.read_bytes()).hexdigest()}")

    assert "WORKER_MODEL__CUSTOM_OPS: " in message
    assert "it is another library than the one named" in message


def test_libraries_that_cannot_be_loaded(path: Path, tmp_path: Path) -> None:
    """A file that is none is refused with the cause, and so is one that is not there."""
    text = tmp_path / "text.so"
    text.write_text("no library")

    assert "text.so cannot be loaded: Failed to load library" in refusal(path, named(text))
    assert "none.so cannot be read: No such file or directory" in refusal(path, f"{tmp_path}/none.so@{'0' * 64}")


@pytest.mark.parametrize("entry", ["/ops.so", "/ops.so@abc", f"@{'0' * 64}"])
def test_entries_that_are_none(entry: str) -> None:
    """A library without a digest, or a digest without a path, is refused."""
    with pytest.raises(ValidationError):
        ModelSettings(path=Path("m.onnx"), custom_ops=(entry,))


def test_a_model_in_python(tmp_path: Path) -> None:
    """The setting has no effect on one, and is refused."""
    path = tmp_path / "model.py"
    path.write_text("class Model:\n    def predict(self, feeds): ...\n")

    with pytest.raises(BadConfiguration, match="WORKER_MODEL__CUSTOM_OPS has no effect"):
        load(ModelSettings(path=path, custom_ops=(f"/ops.so@{'0' * 64}",)), max_batch_size=2)
