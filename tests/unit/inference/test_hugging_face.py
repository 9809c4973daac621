"""A folder of Hugging Face's libraries: which file is its model, and what the other files say."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests import models
from tests.unit.inference.loading import arrays
from worker.core.failures import BadConfiguration
from worker.inference.hugging_face import Folder, folder_of, model_in
from worker.inference.model_loading import inspect, load
from worker.settings import ModelSettings

MINILM: dict[str, object] = {
    "config.json": {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "max_position_embeddings": 512,
        "pad_token_id": 0,
    },
    "tokenizer.json": {},
    "tokenizer_config.json": {"model_max_length": 512},
    "sentence_bert_config.json": {"max_seq_length": 256, "do_lower_case": False},
    "modules.json": [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
    ],
    "1_Pooling/config.json": {
        "word_embedding_dimension": 384,
        "pooling_mode_mean_tokens": True,
        "pooling_mode_cls_token": False,
    },
}


def with_files(folder: Path, files: Mapping[str, object]) -> Path:
    """The folder, with these files in it: texts, or values in JSON."""
    for name, held in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(held if isinstance(held, str) else json.dumps(held))
    return folder


def read(folder: Path) -> Folder:
    found = folder_of(folder)
    assert found is not None
    return found


def refusal(path: Path) -> str:
    with pytest.raises(BadConfiguration) as refused:
        model_in(path)
    assert "\n" not in str(refused.value)
    return str(refused.value)


# ---- The model ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names",
    [
        ["onnx/model.onnx"],
        ["model.onnx"],
        ["onnx/model.onnx", "model.onnx", "onnx/model_int8.onnx"],
        ["onnx/model_int8.onnx"],
        ["model_O2.onnx"],
    ],
)
def test_the_model_of_a_folder_is_found(names: list[str], tmp_path: Path) -> None:
    """In its folder `onnx` first, where exports of several lie; an only one may have any name."""
    folder = with_files(tmp_path / "all-MiniLM-L6-v2", dict.fromkeys(names, ""))

    assert model_in(folder) == folder / names[0]
    assert model_in(folder / names[0]) == folder / names[0]


def test_a_folder_without_a_model_is_told_how_to_get_one(tmp_path: Path) -> None:
    """One of several models must be named, and in the cache one of the snapshots."""
    assert f"`optimum-cli export onnx --model {tmp_path} {tmp_path}` writes it" in refusal(tmp_path)
    with_files(tmp_path, {"onnx/model_O4.onnx": "", "onnx/model_int8.onnx": ""})
    assert f"name one of its models: {tmp_path}/onnx/model_O4.onnx, {tmp_path}/onnx/model_int8.onnx" in refusal(
        tmp_path
    )
    with_files(tmp_path, {"snapshots/abc/config.json": {}})
    assert f"name a snapshot in it: {tmp_path}/snapshots/abc" in refusal(tmp_path)


def test_the_model_of_a_folder_is_served(tmp_path: Path) -> None:
    """Under the folder's name, with the digest of its file, also when only looked at."""
    folder = tmp_path / "bge-small-en-v1.5"
    folder.mkdir()
    models.save(models.mlp(), folder)
    settings = ModelSettings(path=folder, device="cpu")

    model = load(settings, max_batch_size=2)

    assert (model.signature.name, model.signature.sha256) == (folder.name, hashlib.sha256(models.mlp()).hexdigest())
    assert inspect(settings).signature.takes == "x FP32[batch, 4]"


def test_a_snapshot_of_the_cache_is_served(tmp_path: Path) -> None:
    """Its files are links to others, of weights too, and its name is the repository's."""
    repository = tmp_path / "models--sentence-transformers--all-MiniLM-L6-v2"
    snapshot, blobs = repository / "snapshots" / "c9745ed1d9f2", repository / "blobs"
    (snapshot / "onnx").mkdir(parents=True)
    blobs.mkdir()
    path = models.with_external_data(tmp_path)
    for file, name in ((path, "model.onnx"), (tmp_path / "external.bin", "external.bin")):
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        file.rename(blobs / digest)
        (snapshot / "onnx" / name).symlink_to(f"../../../blobs/{digest}")

    model = load(ModelSettings(path=snapshot, device="cpu"), max_batch_size=2)

    assert model.signature.name == "all-MiniLM-L6-v2"
    assert arrays(model.probe())[0].shape == (1, 3)


def test_a_folder_is_named_as_it_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the setting is a dot."""
    monkeypatch.chdir(tmp_path)

    assert ModelSettings(path=Path()).name == tmp_path.name


# ---- What the folder says -------------------------------------------------------------------------------------------


def test_an_embedding_model_is_read(tmp_path: Path) -> None:
    """Its tokenizer, its lengths, its pooling."""
    folder = with_files(tmp_path, MINILM)

    assert folder_of(folder) == Folder(
        folder,
        tokenizer=folder / "tokenizer.json",
        max_tokens=256,
        positions=512,
        pad_token=0,
        pooling="mean",
        normalize=True,
    )


def test_the_folder_of_a_named_model_is_found(tmp_path: Path) -> None:
    """A model beside a configuration of something else is in no such folder."""
    folder = with_files(tmp_path / "hub", {**MINILM, "onnx/model_int8.onnx": "", "model.onnx": ""})
    other = with_files(tmp_path / "other", {"config.json": {"port": 80}, "model.onnx": ""})

    assert folder_of(folder / "onnx" / "model_int8.onnx") == folder_of(folder / "model.onnx") == folder_of(folder)
    assert folder_of(other / "model.onnx") is None
    assert folder_of(tmp_path / "model.onnx") is None


def test_a_folder_that_says_nothing_is_read(tmp_path: Path) -> None:
    assert folder_of(tmp_path) == Folder(tmp_path)


@pytest.mark.parametrize(
    ("config", "tokenizer", "lengths"),
    [
        ({"model_type": "xlm-roberta", "max_position_embeddings": 514, "pad_token_id": 1}, 512, (512, 512)),
        ({"model_type": "bert", "max_position_embeddings": 512}, int(1e30), (None, 512)),
        ({"model_type": "t5"}, 1e30, (None, None)),
    ],
)
def test_the_number_of_positions_is_that_of_tokens(
    config: object, tokenizer: float, lengths: object, tmp_path: Path
) -> None:
    """RoBERTa and its kin have two positions more, and a tokenizer without a limit says 1e30."""
    folder = read(
        with_files(tmp_path, {"config.json": config, "tokenizer_config.json": {"model_max_length": tokenizer}})
    )

    assert (folder.max_tokens, folder.positions) == lengths


@pytest.mark.parametrize(
    ("config", "pooling"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_max_tokens": True}, "max"),
        ({"pooling_mode_lasttoken": True}, "lasttoken"),
        ({"pooling_mode_mean_sqrt_len_tokens": True}, "mean_sqrt_len"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}, "mean+max"),
        ({"pooling_mode": "cls", "include_prompt": True}, "cls"),
        ({"pooling_mode": ["mean", "max"]}, "mean+max"),
        ({}, None),
    ],
)
def test_the_pooling_is_read(config: object, pooling: str | None, tmp_path: Path) -> None:
    """In the words of sentence-transformers, from both forms of its file."""
    assert read(with_files(tmp_path, {"1_Pooling/config.json": config})).pooling == pooling


@pytest.mark.parametrize(
    ("config", "prompt"),
    [
        ({"prompts": {"query": "query: ", "document": "passage: "}, "default_prompt_name": "document"}, "passage: "),
        ({"prompts": {"query": "query: "}, "default_prompt_name": None}, ""),
        ({"prompts": {"query": None}, "default_prompt_name": "query"}, ""),
        ({"prompts": None, "default_prompt_name": "query"}, ""),
        ({}, ""),
    ],
)
def test_the_prompt_is_the_default_one(config: object, prompt: str, tmp_path: Path) -> None:
    """Prompts of other tasks do not count, as in sentence-transformers."""
    folder = read(with_files(tmp_path, {"config_sentence_transformers.json": config}))

    assert (folder.prompt, folder.pools_prompt, folder.is_lowered) == (prompt, True, False)


def test_a_folder_tells_of_prompts_left_out_and_of_small_letters(tmp_path: Path) -> None:
    files = {"1_Pooling/config.json": {"include_prompt": False}, "sentence_bert_config.json": {"do_lower_case": True}}

    folder = read(with_files(tmp_path, files))

    assert (folder.pools_prompt, folder.is_lowered) == (False, True)


def test_further_modules_are_told_of(tmp_path: Path) -> None:
    modules = [{"type": f"sentence_transformers.models.{name}"} for name in ("Transformer", "Pooling", "Dense")]

    folder = read(with_files(tmp_path, {"modules.json": modules}))

    assert (folder.steps, folder.normalize) == (("Dense",), False)


@pytest.mark.parametrize(
    ("config", "labels", "activation"),
    [
        ({"id2label": {"1": "b", "0": "a", "2": "c"}}, ("a", "b", "c"), "softmax"),
        ({"id2label": {"0": "a", "1": "b"}, "problem_type": "multi_label_classification"}, ("a", "b"), "sigmoid"),
        ({"id2label": {"0": "LABEL_0"}}, ("LABEL_0",), "sigmoid"),
        ({"id2label": {"0": "LABEL_0"}, "problem_type": "regression"}, ("LABEL_0",), "output"),
        (
            {"id2label": {"0": "L"}, "sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}},
            ("L",),
            "output",
        ),
        (
            {"id2label": {"0": "L"}, "sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"},
            ("L",),
            "output",
        ),
        ({"id2label": {"0": "a", "2": "c"}}, None, "softmax"),
        ({"id2label": {"a": "0"}}, None, "softmax"),
        ({"id2label": {}}, None, "softmax"),
        ({"architectures": ["BertModel"], "id2label": {"0": "LABEL_0"}}, None, "softmax"),
        ({"architectures": ["BertForSequenceClassification"], "id2label": {"0": "a", "1": "b"}}, ("a", "b"), "softmax"),
        ({"architectures": ["BertForSequenceClassification"]}, ("LABEL_0", "LABEL_1"), "softmax"),
        ({"architectures": ["BertModel"]}, None, "softmax"),
    ],
)
def test_a_classifier_is_read(config: object, labels: object, activation: str, tmp_path: Path) -> None:
    """Its labels are in the order of their numbers. Encoders have none, whatever they say."""
    folder = read(with_files(tmp_path, {"config.json": config}))

    assert (folder.labels, folder.activation) == (labels, activation)


@pytest.mark.parametrize(
    ("named", "activation"),
    [("linear.Identity", "output"), ("activation.Sigmoid", "sigmoid"), ("activation.Softmax", "softmax")],
)
def test_the_activation_of_a_reranker_is_read(named: str, activation: str, tmp_path: Path) -> None:
    """From the file that sentence-transformers writes since its version 6; it counts first."""
    files = {
        "config.json": {"id2label": {"0": "L"}, "sentence_transformers": {"activation_fn": "torch.nn.Sigmoid"}},
        "config_sentence_transformers.json": {"activation_fn": f"torch.nn.modules.{named}"},
    }

    assert read(with_files(tmp_path, files)).activation == activation


def test_the_preparation_of_images_is_found(tmp_path: Path) -> None:
    folder = read(with_files(tmp_path, {"preprocessor_config.json": {}}))

    assert folder.image_preprocessing == tmp_path / "preprocessor_config.json"


@pytest.mark.parametrize("held", ["{", "[" * 100_000, b"\xff"])
def test_a_file_that_was_cut_short_is_named(held: Any, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(held if isinstance(held, bytes) else held.encode())

    with pytest.raises(BadConfiguration, match=r"config\.json cannot be read: .*; copy the folder anew"):
        folder_of(tmp_path)


def test_numbers_of_another_kind_are_left_out(tmp_path: Path) -> None:
    config = {"max_position_embeddings": "512", "pad_token_id": True, "id2label": ["a"]}

    assert folder_of(with_files(tmp_path, {"config.json": config, "modules.json": [7]})) == Folder(tmp_path)
    assert folder_of(with_files(tmp_path, {"config.json": [config], "modules.json": {}})) == Folder(tmp_path)
