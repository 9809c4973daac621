"""The fields of an answer that a folder stands for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from worker.core.failures import BadConfiguration
from worker.core.tensors.specs import TensorSpec
from worker.inference.hugging_face import Folder
from worker.inference.records.conclusions import fields_of
from worker.inference.records.folder_answers import check_lengths, folder_answers

VECTORS = TensorSpec("last_hidden_state", "FP32", (None, 384))
SENTENCE = TensorSpec("sentence_embedding", "FP32", (384,))
LABELS = ("negative", "positive")


def folder(**said: Any) -> Folder:
    return Folder(Path("/models/it"), **said)


def logits(*dims: int | None) -> TensorSpec:
    return TensorSpec("logits", "FP32", dims)


def fields(said: Folder, *outputs: TensorSpec) -> list[str]:
    """The fields, as the answers' own rules make them."""
    made = fields_of(folder_answers(said, outputs), outputs, ["attention_mask"], said.labels or ())
    return [str(field.spec) for field in made]


@pytest.mark.parametrize(
    ("pooling", "operation"), [("mean", "mean"), ("cls", "cls"), ("max", "max"), ("lasttoken", "last")]
)
@pytest.mark.parametrize("normalize", [False, True])
def test_vectors_of_tokens_become_an_embedding(pooling: str, operation: str, *, normalize: bool) -> None:
    said = folder(pooling=pooling, normalize=normalize)

    assert fields(said, VECTORS) == ["embedding FP32[batch, 384]"]
    assert folder_answers(said, [VECTORS]) == {"embedding": {operation: "last_hidden_state", "normalize": normalize}}


def test_an_embedding_that_the_model_gives_is_taken() -> None:
    """It has all modules inside."""
    tokens = TensorSpec("token_embeddings", "FP32", (None, 384))

    assert fields(folder(pooling="lasttoken", steps=("Dense",)), tokens, SENTENCE) == ["embedding FP32[batch, 384]"]
    of_clip = TensorSpec("image_embeds", "FP32", (512,))
    assert fields(folder(), VECTORS, of_clip) == ["embedding FP32[batch, 512]"]


def test_a_classifier_gives_a_label_and_its_score() -> None:
    assert fields(folder(labels=LABELS), logits(2)) == ["label BYTES[batch]", "score FP32[batch]"]


@pytest.mark.parametrize("activation", ["softmax", "sigmoid", "output"])
def test_the_score_is_made_as_the_folder_says(activation: str) -> None:
    assert folder_answers(folder(labels=LABELS, activation=activation), [logits(2)])["score"] == {
        activation: "logits",
        "top": 1,
    }


def test_one_label_gives_a_score_alone() -> None:
    """It is a reranker's, or a number that was learnt."""
    said = folder(labels=("LABEL_0",), activation="sigmoid")

    assert fields(said, logits(1)) == ["score FP32[batch]"]
    assert folder_answers(said, [logits(1)]) == {"score": {"sigmoid": "logits"}}


@pytest.mark.parametrize(
    "outputs", [[TensorSpec("score", "FP32", (1,))], [TensorSpec("last_hidden_state", "FP32", (197, 768))], []]
)
def test_other_outputs_are_left_as_they_are(outputs: list[TensorSpec]) -> None:
    assert folder_answers(folder(labels=LABELS), outputs) == {}


@pytest.mark.parametrize(
    ("said", "output", "message"),
    [
        (
            {"labels": LABELS},
            logits(None, 2),
            r"gives logits FP32\[batch, \?, 2\]: labels of tokens.*`answer` in the func",
        ),
        ({}, VECTORS, r'a vector for each token.*1_Pooling/config.json.*embedding = \{ mean = "last_hidden_state" \}'),
        (
            {"pooling": "weightedmean"},
            VECTORS,
            r"1_Pooling asks for weightedmean, and mean, cls, max, lasttoken are made here; `optimum",
        ),
        ({"pooling": "mean", "steps": ("Dense",)}, VECTORS, r"modules.json has Dense after the encoder.*`optimum-cli"),
    ],
)
def test_values_by_token_that_stay_so_are_refused(said: dict[str, Any], output: TensorSpec, message: str) -> None:
    """The message has the cure."""
    with pytest.raises(BadConfiguration, match=rf"^\[records\.answer\] .*{message}"):
        folder_answers(folder(**said), [output])


def by_token(entry: Any, *dims: int | None, axis: str | None = "tokens") -> bool:
    symbols = tuple(axis if dim is None else None for dim in dims)
    output = TensorSpec("logits", "FP32", dims, symbols)
    return fields_of({"field": entry}, [output], ["attention_mask"])[0].is_by_token("tokens")


def test_a_field_with_values_by_token_is_refused() -> None:
    """Its rows would be as long as the longest text of a run."""
    field = fields_of({"spans": {"argmax": "logits"}}, [TensorSpec("logits", "FP32", (None, 3), ("tokens", None))])

    check_lengths(field, "others")
    with pytest.raises(BadConfiguration, match=r"spans: logits FP32\[batch, tokens, 3\] has values for each token"):
        check_lengths(field, "tokens")


@pytest.mark.parametrize(
    ("entry", "dims"),
    [
        ("logits", (None,)),
        ("logits", (None, 3)),
        ({"argmax": "logits"}, (None,)),
        ({"argmax": "logits"}, (None, 3)),
        ({"softmax": "logits", "top": 2}, (None,)),
    ],
)
def test_all_tokens_have_a_part_in_it(entry: Any, dims: tuple[int | None, ...]) -> None:
    """Even an index among the tokens may be one of padding."""
    assert by_token(entry, *dims)


@pytest.mark.parametrize(
    ("entry", "dims", "axis"),
    [
        ({"mean": "logits"}, (None, 3), "tokens"),
        ({"cls": "logits"}, (None, 3), "tokens"),
        ("logits[0]", (None, 3), "tokens"),
        ("logits", (3,), "tokens"),
        ("logits", (3, None), "tokens"),
        ("logits", (None,), None),
        ("logits", (None,), "width"),
    ],
)
def test_no_padding_has_a_part_in_it(entry: Any, dims: tuple[int | None, ...], axis: str | None) -> None:
    assert not by_token(entry, *dims, axis=axis)


def test_values_by_token_without_a_name_are_known_by_their_open_axis() -> None:
    assert by_token("logits", None, 3, axis=None)
