"""The model's file: other files are refused, a pin covers the loaded bytes, and a digest names the served model."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from tests import models
from tests.unit.inference.loading import arrays, loaded, refusal
from worker.core.failures import BadConfiguration
from worker.inference import model_file
from worker.inference.model_file import digest_of
from worker.inference.model_loading import load
from worker.settings import ModelSettings


@pytest.mark.parametrize("model", [b"", b"version https://git-lfs.github.com/spec/v1\n", b"not a model", b"\x08\x01"])
def test_what_is_no_model_is_refused(model: bytes, tmp_path: Path) -> None:
    assert "no ONNX model, or one that was cut short, or a Git LFS pointer" in refusal(model, tmp_path)


def test_a_path_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """The message names the variable that holds the path."""
    with pytest.raises(BadConfiguration, match=r"nowhere\.onnx: the model cannot be read: No such.*WORKER_MODEL__PATH"):
        load(ModelSettings(path=tmp_path / "nowhere.onnx"), max_batch_size=4)


@pytest.mark.parametrize("pin", [None, hashlib.sha256(models.mlp()).hexdigest()])
def test_the_file_is_not_kept_next_to_the_model(pin: str | None, tmp_path: Path) -> None:
    """ONNX Runtime has its own copy of the weights by then."""
    model = loaded(models.mlp(), tmp_path, sha256=pin)

    assert not any(isinstance(held, bytes) for held in vars(model._session).values())


@pytest.mark.parametrize("is_pinned", [False, True])
@pytest.mark.parametrize("name", ["model.onnx", "model.ort", "model", "mod\udcffl.onnx"])
@pytest.mark.parametrize("kind", ["onnx", "ort"])
def test_a_model_is_known_by_what_it_is_and_not_by_its_name(
    kind: str, name: str, *, is_pinned: bool, tmp_path: Path
) -> None:
    """This includes ONNX Runtime's own format, and a name that is no UTF-8."""
    path = tmp_path / name
    path.write_bytes(models.mlp() if kind == "onnx" else models.as_ort(models.mlp(), tmp_path))
    pin = hashlib.sha256(path.read_bytes()).hexdigest() if is_pinned else None

    model = load(ModelSettings(path=path, device="cpu", sha256=pin), max_batch_size=2)

    assert model.signature.takes == "x FP32[batch, 4]"


# ---- Pins and digests -----------------------------------------------------------------------------------------------


def test_a_pinned_model_loads_and_another_is_refused(tmp_path: Path) -> None:
    """The pin is the SHA-256 of the loaded bytes, and also the model's digest."""
    pin = hashlib.sha256(models.mlp()).hexdigest()

    assert loaded(models.mlp(), tmp_path, sha256=pin.upper()).signature.sha256 == pin
    assert loaded(models.mlp(), tmp_path).signature.sha256 == pin
    assert "another model than the one pinned" in refusal(models.mlp(seed=1), tmp_path, sha256=pin)


def test_weights_in_other_files_load_but_cannot_be_pinned(tmp_path: Path) -> None:
    """A pin of the graph alone would promise too much."""
    path = models.with_external_data(tmp_path)
    pin = hashlib.sha256(path.read_bytes()).hexdigest()

    model = load(ModelSettings(path=path, device="cpu"), max_batch_size=2)

    assert arrays(model.probe())[0].shape == (1, 3)
    with pytest.raises(BadConfiguration, match="its weights lie in other files"):
        load(ModelSettings(path=path, device="cpu", sha256=pin), max_batch_size=2)


def test_weights_elsewhere_are_never_a_pinned_models_however_the_file_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here a value comes before its key, which no protobuf writer does, and weights lie in the current directory."""
    tensor = TensorProto(dims=[4], data_type=TensorProto.FLOAT, name="w", data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="weights.bin")
    written = models.model("float[batch, 4] x => float[batch, 4] y", "y = Add(x, w)", tensors=[tensor])
    key, value = b"\n\x08location", b"\x12\x0bweights.bin"
    path = models.save(written.replace(key + value, value + key), tmp_path)
    np.ones(4, "<f4").tofile(tmp_path / "weights.bin")
    monkeypatch.chdir(tmp_path)
    settings = ModelSettings(path=path, device="cpu", sha256=hashlib.sha256(path.read_bytes()).hexdigest())

    assert load(settings.model_copy(update={"sha256": None}), max_batch_size=2).warmed_up_at
    with pytest.raises(BadConfiguration, match="cannot load the model"):
        load(settings, max_batch_size=2)


def test_a_file_that_is_written_in_the_place_of_another_is_another(tmp_path: Path) -> None:
    """This holds within one process, and for new weights of equal size under an unchanged graph."""
    path = models.with_external_data(tmp_path)
    (weights,) = tmp_path.glob("*.bin")
    first = load(ModelSettings(path=path, device="cpu"), max_batch_size=2).signature.sha256
    alone = hashlib.sha256(path.read_bytes()).hexdigest()

    assert digest_of(path) == first
    weights.write_bytes(bytes(reversed(weights.read_bytes())))
    assert digest_of(path) not in {first, alone, ""}
    path.write_bytes(models.mlp())
    assert digest_of(path) == hashlib.sha256(models.mlp()).hexdigest()


def test_what_cannot_be_read_has_no_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error comes when it is loaded. Missing weights, and a device in their place, are left out of the digest."""
    path = models.with_external_data(tmp_path)
    (weights,) = tmp_path.glob("*.bin")
    weights.unlink()
    without = digest_of(path)
    weights.symlink_to("/dev/zero")

    assert digest_of(tmp_path / "none.onnx") == ""
    assert digest_of(path) == without != ""
    monkeypatch.setattr(model_file, "LARGEST_FILE", 100)
    assert digest_of(path) == ""


@pytest.mark.parametrize("value", ["Berlin", "B" * 200, ""])
def test_a_location_in_the_metadata_is_no_weight_in_another_file(value: str, tmp_path: Path) -> None:
    """It is written in the form of one."""
    held = onnx.load_from_string(models.identity())
    held.metadata_props.add(key="location", value=value)
    model = bytes(held.SerializeToString())
    digest = hashlib.sha256(model).hexdigest()

    assert loaded(model, tmp_path, sha256=digest).signature.sha256 == digest
    assert loaded(model, tmp_path).signature.sha256 == digest


def test_weights_that_cannot_be_had_are_told_of_with_the_cure(tmp_path: Path) -> None:
    """Cases: weights cut short, in another folder than a link to the model, missing."""
    (tmp_path / "model").mkdir()
    path, link = models.with_external_data(tmp_path / "model"), tmp_path / "link.onnx"
    link.symlink_to(path)
    weights = tmp_path / "model" / "external.bin"

    def why(of: Path) -> str:
        with pytest.raises(BadConfiguration) as refused:
            load(ModelSettings(path=of, device="cpu"), max_batch_size=2)
        return str(refused.value)

    assert "External data path escapes" in why(link)
    weights.write_bytes(weights.read_bytes()[:100])
    assert "are out of bounds" in why(path)
    weights.unlink()
    assert f'External data path does not exist: "{weights}' in why(path)
