"""A folder of a sentence encoder, served to records of which one field is a text."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from tests.bert import WORDS, Weights, folder, forward, random_weights, word_tokenizer
from tests.unit.inference.loading import arrays
from worker.core.failures import BadConfiguration, Code, RowFault, RunFailure
from worker.core.records import Array
from worker.inference.facts import ModelFacts, Runnable
from worker.inference.served_model import load_served
from worker.settings import BatchingSettings, ModelSettings
from worker.settings.records_section import RecordsSettings

HEADS = 2


@pytest.fixture(scope="module")
def weights() -> Weights:
    return random_weights()


@pytest.fixture(scope="module")
def encoder(weights: Weights, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder(tmp_path_factory.mktemp("encoder"), weights, HEADS, word_tokenizer())


def served(path: Path, **records: Any) -> tuple[Runnable, ModelFacts]:
    """The model as the host loads it, with one field of a text and nothing else set."""
    section = SimpleNamespace(**RecordsSettings(text={"field": "body"}, **records).model_dump())
    model = ModelSettings(path=path, device="cpu")
    return load_served(model, BatchingSettings(), section, {})  # type: ignore[arg-type]  # the host has plain values


def by_hand(weights: Weights, tokenizer: Tokenizer, text: str) -> Array:
    """The embedding of one text as sentence-transformers makes it: the mean of its tokens' vectors, of length 1."""
    ids = np.array([tokenizer.encode(text).ids])
    mean = forward(weights, HEADS, ids, np.ones_like(ids))[0].mean(axis=0)
    found: Array = mean / np.linalg.norm(mean)
    return found


def test_a_folder_and_a_field_are_enough(encoder: Path, weights: Weights) -> None:
    """Each text of a batch has the embedding that it has alone: short ones, an empty one, one of too many tokens."""
    chosen = random.Random(1)
    texts = [
        "",
        *[" ".join(chosen.choices(WORDS, k=length)) for length in (1, 3, 3, 60, 250, 300, 5000)],
        "Unknown dog",
    ]
    tokenizer = Tokenizer.from_file(str(encoder / "tokenizer.json"))
    tokenizer.enable_truncation(256)

    model, facts = served(encoder)
    (embeddings,) = arrays(model.run({"text": np.array(texts, object)}))

    expected = [by_hand(weights, tokenizer, text) for text in texts]
    assert facts.signature.takes == "text BYTES[batch]"
    assert [str(spec) for spec in facts.signature.outputs] == ["embedding FP32[batch, 32]"]
    assert np.abs(embeddings - np.array(expected)).max() < 1e-5


def test_a_text_without_tokens_leaves_the_others_to_another_run(encoder: Path) -> None:
    model, _ = served(encoder)

    outcome = model.run({"text": np.array(["dog", "\udcff", "cat"], object)})

    assert isinstance(outcome, RunFailure)
    assert outcome.faults == {1: RowFault(Code.INVALID_ARGUMENT, "body: expected a text without lone surrogates")}


def test_the_vectors_of_tokens_are_no_field(encoder: Path) -> None:
    with pytest.raises(
        BadConfiguration,
        match=r"\[records.answer\] all: last_hidden_state FP32\[batch, sequence, 32\] has values for each token",
    ):
        served(encoder, answer={"all": "last_hidden_state"})
