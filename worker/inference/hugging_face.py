"""A folder as Hugging Face's libraries write it: which of its files is the model, and what the others say about it.

`MODEL__PATH` names the folder, a snapshot in the libraries' cache, whose files are links, or one model of several in a
folder: `onnx/model_quantized.onnx`. Nothing here is loaded but small JSON files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from worker.core.failures import BadConfiguration, listed

# Where `optimum-cli export onnx`, sentence-transformers and the hub put the model. An only one may have another name.
_MODELS = ("onnx/model.onnx", "model.onnx")
# Architectures that count their positions from the pad token's id + 1 on, so 514 positions are 512 tokens.
_POSITIONS_AFTER_PAD = frozenset(
    {"roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "mpnet", "data2vec-text", "esm", "longformer", "ibert"}
)
# A tokenizer without a limit of its own says 1e30.
_NO_LIMIT = 10**9
# The labels that transformers gives a classifier of two classes, and does not write down.
_UNNAMED = {"0": "LABEL_0", "1": "LABEL_1"}
# The modules of sentence-transformers that are known here. A Dense layer, for one, would be missing from the answer.
_MODULES = ("Transformer", "Pooling", "Normalize")
_MODE = "pooling_mode_"  # … of `pooling_mode_mean_tokens: true`


@dataclass(frozen=True, slots=True)
class Folder:
    """The facts that a folder tells about its model. None, or False: the folder does not say.

    `max_tokens` is the length that the model is meant for, and `positions` the most tokens that it can take. `pooling`
    is a mode of sentence-transformers (`mean`, `cls`, `max`, …), several are joined with `+`; `normalize`: the pooled
    vector is divided by its length. `steps` are modules after the encoder that are none of these. `prompt` begins each
    text; if not `pools_prompt`, the embedding leaves its tokens out. `is_lowered`: texts are put in small letters.
    `labels` are those of a classifier, by index, and `activation` makes scores of its logits: `softmax`, `sigmoid`, or
    `output` for none.
    """

    path: Path
    tokenizer: Path | None = None
    max_tokens: int | None = None
    positions: int | None = None
    pad_token: int | None = None
    pooling: str | None = None
    normalize: bool = False
    steps: Sequence[str] = ()
    prompt: str = ""
    pools_prompt: bool = True
    is_lowered: bool = False
    labels: tuple[str, ...] | None = None
    activation: str = "softmax"
    image_preprocessing: Path | None = None


def model_in(path: Path) -> Path:
    """The model's file: the path itself, or the file in this folder. Raises `BadConfiguration` for a folder without."""
    if not path.is_dir():
        return path
    for name in _MODELS:
        if (path / name).is_file():
            return path / name
    if len(only := [*path.glob("*.onnx"), *path.glob("onnx/*.onnx")]) == 1:
        return only[0]
    if snapshots := sorted(path.glob("snapshots/*/")):
        cure = f"name a snapshot in it: {listed(snapshots)}"
    elif others := sorted(file.relative_to(path).as_posix() for file in path.glob("**/*.onnx")):
        cure = f"name one of its models: {listed(path / other for other in others)}"
    else:
        cure = f"`optimum-cli export onnx --model {path} {path}` writes it"
    raise BadConfiguration(f"{path}: the folder has no {' or '.join(_MODELS)}; {cure}; WORKER_MODEL__PATH names it")


def folder_of(path: Path) -> Folder | None:
    """The facts of the model's folder; None for a file in no such folder. Raises `BadConfiguration`."""
    if path.is_dir():
        return _read(path)
    parent = path.parent
    beside = [parent, parent.parent] if parent.name == "onnx" else [parent]
    return next((_read(folder) for folder in beside if _is_model(_object(folder / "config.json"))), None)


def _is_model(config: Mapping[str, Any]) -> bool:
    """True for the configuration of a model; any program may have a `config.json`."""
    return "model_type" in config or "architectures" in config


def _read(path: Path) -> Folder:
    config = _object(path / "config.json")
    modules = _modules(path)
    kinds = [kind for kind, _ in modules]
    labels = _labels(config)
    pad = config.get("pad_token_id")
    encoder, pooling = _object(path / "sentence_bert_config.json"), _object(_pooling_file(path, modules))
    sentences = _object(path / "config_sentence_transformers.json")
    return Folder(
        path,
        tokenizer=_file(path / "tokenizer.json"),
        max_tokens=_limit(encoder.get("max_seq_length"))
        or _limit(_object(path / "tokenizer_config.json").get("model_max_length")),
        positions=_positions(config),
        pad_token=pad if _is_count(pad) else None,
        pooling=_pooling(pooling),
        normalize="Normalize" in kinds,
        steps=tuple(kind for kind in kinds if kind not in _MODULES),
        prompt=_prompt(sentences),
        pools_prompt=pooling.get("include_prompt") is not False,
        is_lowered=encoder.get("do_lower_case") is True,
        labels=labels,
        activation=_activation(config, sentences, labels or ()),
        image_preprocessing=_file(path / "preprocessor_config.json"),
    )


def _file(path: Path) -> Path | None:
    return path if path.is_file() else None


def _object(path: Path) -> Mapping[str, Any]:
    """The JSON object in this file; an empty one without a file. Raises `BadConfiguration`."""
    found = _json(path)
    return found if isinstance(found, dict) else {}


def _json(path: Path) -> object:
    try:
        return json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise BadConfiguration(f"{path} cannot be read: {error}; copy the folder anew") from error


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _limit(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and 0 < value < _NO_LIMIT else None


def _positions(config: Mapping[str, Any]) -> int | None:
    """The most tokens that the model has positions for. A relative position (T5) has no end."""
    found = _limit(config.get("max_position_embeddings"))
    if found is None or config.get("model_type") not in _POSITIONS_AFTER_PAD:
        return found
    return found - int(config.get("pad_token_id") or 0) - 1


def _modules(path: Path) -> Sequence[tuple[str, str]]:
    """The modules of sentence-transformers in their order: the last part of the name, and the folder."""
    given = _json(path / "modules.json")
    found = [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []
    return [(str(one.get("type")).rpartition(".")[2], str(one.get("path", ""))) for one in found]


def _pooling_file(path: Path, modules: Sequence[tuple[str, str]]) -> Path:
    return path / dict(modules).get("Pooling", "1_Pooling") / "config.json"


def _pooling(config: Mapping[str, Any]) -> str | None:
    if named := config.get("pooling_mode"):
        return named if isinstance(named, str) else "+".join(map(str, named))
    modes = [name.removeprefix(_MODE) for name, is_on in config.items() if name.startswith(_MODE) and is_on is True]
    return "+".join(re.sub("_tokens?$", "", mode) for mode in modes) or None


def _prompt(config: Mapping[str, Any]) -> str:
    """The prompt of a text where none is named; that of a query, for one, is of no use for documents."""
    prompts = config.get("prompts")
    return str(prompts.get(config.get("default_prompt_name")) or "") if isinstance(prompts, dict) else ""


def _labels(config: Mapping[str, Any]) -> tuple[str, ...] | None:
    """A classifier's labels by index. Encoders may have some, too, which say nothing."""
    architectures = " ".join(map(str, config.get("architectures") or ["Classification"]))
    named = config.get("id2label") or (_UNNAMED if "architectures" in config else None)
    if not isinstance(named, dict) or not named or "Classification" not in architectures:
        return None
    try:
        by_index = {int(index): str(label) for index, label in named.items()}
    except ValueError:
        return None
    return tuple(by_index[at] for at in sorted(by_index)) if max(by_index) == len(by_index) - 1 else None


def _activation(config: Mapping[str, Any], sentences: Mapping[str, Any], labels: Sequence[str]) -> str:
    """The activation of a classifier's logits, as the pipelines of transformers and sentence-transformers choose it.

    Since its version 6 the latter has it in a file of its own, from 4 on in `config.json`, before under another name.
    """
    own = config.get("sentence_transformers")
    before = own.get("activation_fn") if isinstance(own, dict) else config.get("sbert_ce_default_activation_function")
    named = sentences.get("activation_fn", before)
    if named is not None:
        return {"Identity": "output", "Sigmoid": "sigmoid"}.get(str(named).rpartition(".")[2], "softmax")
    problem = config.get("problem_type")
    if problem == "regression":
        return "output"
    return "sigmoid" if problem == "multi_label_classification" or len(labels) == 1 else "softmax"
