"""The fields of an answer that a folder's files stand for, where `[records.answer]` names none.

| the model                             | fields |
|---|---|
| a classifier (`id2label`)             | `label` and its `score`; of one label the `score` alone |
| gives `sentence_embedding`, or CLIP's | `embedding` |
| gives a vector for each token         | `embedding`: pooled and normalised as `1_Pooling` and `modules.json` say |
| any other                             | all outputs |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from worker.core.failures import BadConfiguration
from worker.core.tensors.specs import TensorSpec
from worker.inference.hugging_face import Folder
from worker.inference.records.conclusions import Field

# An export by sentence-transformers has all of its modules inside, and one of CLIP its projection.
_EMBEDDINGS = ("sentence_embedding", "text_embeds", "image_embeds")
_VECTORS = ("last_hidden_state", "token_embeddings")
_POOLINGS = {"mean": "mean", "cls": "cls", "max": "max", "lasttoken": "last"}
_BY_ANSWER = "fields of your own by `answer` in the functions of [records] (docs/models.md#labels-of-tokens)"
_WHOLE = "`optimum-cli export onnx --library sentence_transformers` makes a model that gives sentence_embedding"


def folder_answers(folder: Folder, outputs: Sequence[TensorSpec]) -> Mapping[str, Any]:
    """Entries for `[records.answer]`; none: all outputs. Raises `BadConfiguration` for values by token that stay so."""
    named = {spec.name: spec for spec in outputs}
    if folder.labels is not None and (logits := named.get("logits")) is not None:
        return _of_classes(folder, logits)
    if (embedding := next((name for name in _EMBEDDINGS if name in named), None)) is not None:
        return {"embedding": embedding}
    vectors = next((name for name in _VECTORS if name in named), None)
    if vectors is None or (folder.pooling is None and named[vectors].dims[:1] != (None,)):
        return {}
    return {"embedding": {_operation(folder, named[vectors]): vectors, "normalize": folder.normalize}}


def check_lengths(fields: Iterable[Field], axis: str | None) -> None:
    """Raises `BadConfiguration` for a field of each token's values: the texts of a run are padded to one length.

    `axis` is the name of the tokens' axis in the model's file. Where it has none, one open dimension is a vector's.
    """
    for field in fields:
        if field.is_by_token(axis):
            raise BadConfiguration(
                f"[records.answer] {field.spec.name}: {field.output} has values for each token, padding too: make one "
                f"vector of them by mean, max, cls or last, or {_BY_ANSWER}"
            )


def _of_classes(folder: Folder, logits: TensorSpec) -> Mapping[str, Any]:
    assert folder.labels is not None
    if len(logits.dims) != 1:
        raise BadConfiguration(
            f"[records.answer] the model gives {logits}: labels of tokens, which no field can hold; make {_BY_ANSWER}"
        )
    if len(folder.labels) == 1:
        return {"score": {folder.activation: "logits"}}
    return {"label": {"argmax": "logits"}, "score": {folder.activation: "logits", "top": 1}}


def _operation(folder: Folder, vectors: TensorSpec) -> str:
    """The operation that makes one vector of a row."""
    if folder.steps:
        raise BadConfiguration(
            f"[records.answer] embedding: {folder.path / 'modules.json'} has {folder.steps[0]} after the encoder, and "
            f"the model gives {vectors} without it; {_WHOLE}"
        )
    if folder.pooling is None:
        raise BadConfiguration(
            f"[records.answer] the model gives {vectors}, a vector for each token, and {folder.path} has no "
            f'1_Pooling/config.json: write how one is made, such as embedding = {{ mean = "{vectors.name}" }}'
        )
    if folder.pooling not in _POOLINGS:
        raise BadConfiguration(
            f"[records.answer] embedding: {folder.path / '1_Pooling'} asks for {folder.pooling}, and "
            f"{', '.join(_POOLINGS)} are made here; {_WHOLE}"
        )
    return _POOLINGS[folder.pooling]
