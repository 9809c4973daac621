"""BERT as Hugging Face's exports have it, from weights under their own names; and the folder of a sentence encoder.

`bert` makes the graph, `forward` computes the same in NumPy, and `folder` writes what a sentence encoder's folder has.
Nothing here imports `worker`: a mistake there must not hide here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from tests.models import Graph

Array = NDArray[Any]
Weights = Mapping[str, Array]

EPSILON = 1e-12  # of a layer normalisation
POSITIONS = 512
PAD, UNKNOWN, FIRST, LAST = "[PAD]", "[UNK]", "[CLS]", "[SEP]"
WORDS = (
    "the",
    "a",
    "cat",
    "dog",
    "sat",
    "ran",
    "on",
    "mat",
    "house",
    "red",
    "blue",
    "big",
    "small",
    "and",
    "not",
    "one",
)


def bert(weights: Weights, heads: int) -> bytes:
    """Makes the graph of input_ids, attention_mask, token_type_ids INT64 (batch, sequence) → last_hidden_state.

    The output is FP32 (batch, sequence, width). Where the mask is 0 is padding: it changes nothing elsewhere.
    """
    net = _Bert(weights, heads)
    length = net.node("Shape", "input_ids", start=1, end=2)
    zero, axes = net.constant([0], np.int64), net.constant([1, 2], np.int64)
    words = net.node("Gather", net.weight("embeddings.word_embeddings"), "input_ids")
    kinds = net.node("Gather", net.weight("embeddings.token_type_embeddings"), "token_type_ids")
    places = net.node("Slice", net.weight("embeddings.position_embeddings"), zero, length, zero)
    state = net.evened("embeddings.LayerNorm", net.node("Add", net.node("Add", words, kinds), places))
    mask = net.node("Cast", "attention_mask", to=TensorProto.FLOAT)
    hidden = net.node("Mul", net.node("Sub", net.constant(1), mask), net.constant(-1e9))
    hidden = net.node("Unsqueeze", hidden, axes)  # (batch, 1, 1, sequence)
    for layer in range(layers_of(weights)):
        state = net.layer(f"encoder.layer.{layer}", state, hidden)
    net.node("Identity", state, gives="last_hidden_state")
    inputs = ", ".join(f"int64[batch, sequence] {name}" for name in ("input_ids", "attention_mask", "token_type_ids"))
    return net.model(f"{inputs} => float[batch, sequence, {net.width}] last_hidden_state", opset=20)


class _Bert(Graph):
    """The layers of a BERT."""

    def __init__(self, weights: Weights, heads: int) -> None:
        super().__init__(np.random.default_rng(0))
        self._weights, self._heads = weights, heads
        self.width = width_of(weights)

    def weight(self, name: str, part: str = "weight", *, is_turned: bool = False) -> str:
        found = self._weights[f"{name}.{part}"]
        return self.constant(found.T if is_turned else found)

    def linear(self, name: str, of: str) -> str:
        """A dense layer. The file has its weights as (outputs, inputs)."""
        product = self.node("MatMul", of, self.weight(name, is_turned=True))
        return self.node("Add", product, self.weight(name, "bias"))

    def evened(self, name: str, of: str) -> str:
        weight, bias = self.weight(name), self.weight(name, "bias")
        return self.node("LayerNormalization", of, weight, bias, axis=-1, epsilon=EPSILON)

    def layer(self, name: str, state: str, hidden: str) -> str:
        seen = self.linear(f"{name}.attention.output.dense", self._attention(f"{name}.attention.self", state, hidden))
        state = self.evened(f"{name}.attention.output.LayerNorm", self.node("Add", seen, state))
        inner = self.node("Gelu", self.linear(f"{name}.intermediate.dense", state))
        outer = self.linear(f"{name}.output.dense", inner)
        return self.evened(f"{name}.output.LayerNorm", self.node("Add", outer, state))

    def _attention(self, name: str, state: str, hidden: str) -> str:
        apart = self.constant([0, 0, self._heads, self.width // self._heads], np.int64)

        def part(which: str, *order: int) -> str:
            rows = self.node("Reshape", self.linear(f"{name}.{which}", state), apart)
            return self.node("Transpose", rows, perm=order)

        query, key, value = part("query", 0, 2, 1, 3), part("key", 0, 2, 3, 1), part("value", 0, 2, 1, 3)
        scale = self.constant(math.sqrt(self._heads / self.width))
        scores = self.node("Add", self.node("Mul", self.node("MatMul", query, key), scale), hidden)
        seen = self.node("MatMul", self.node("Softmax", scores, axis=-1), value)
        seen = self.node("Transpose", seen, perm=(0, 2, 1, 3))
        return self.node("Reshape", seen, self.constant([0, 0, self.width], np.int64))


def forward(weights: Weights, heads: int, ids: Array, mask: Array) -> Array:
    """Computes last_hidden_state (batch, sequence, width) in NumPy, in FP64, for texts of one kind."""

    def linear(name: str, of: Array) -> Array:
        found: Array = of @ weights[f"{name}.weight"].T.astype(np.float64) + weights[f"{name}.bias"]
        return found

    def normal(name: str, of: Array) -> Array:
        apart = of - of.mean(-1, keepdims=True)
        scaled = apart / np.sqrt((apart**2).mean(-1, keepdims=True) + EPSILON)
        found: Array = scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]
        return found

    def split(of: Array) -> Array:
        return of.reshape(*of.shape[:2], heads, -1).transpose(0, 2, 1, 3)

    def embedded(name: str, at: Any) -> Array:
        found: Array = weights[f"embeddings.{name}_embeddings.weight"][at]
        return found

    state: Array = embedded("word", ids) + embedded("token_type", 0) + embedded("position", range(ids.shape[1]))
    state = normal("embeddings.LayerNorm", state)
    for layer in range(layers_of(weights)):
        name = f"encoder.layer.{layer}"
        query, key, value = (
            split(linear(f"{name}.attention.self.{part}", state)) for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 1, 3, 2) / math.sqrt(query.shape[-1])
        scores = np.where(mask[:, None, None, :] == 1, scores, -np.inf)
        looks = np.exp(scores - scores.max(-1, keepdims=True))
        seen = (looks / looks.sum(-1, keepdims=True) @ value).transpose(0, 2, 1, 3).reshape(state.shape)
        state = normal(f"{name}.attention.output.LayerNorm", linear(f"{name}.attention.output.dense", seen) + state)
        inner = linear(f"{name}.intermediate.dense", state)
        inner = inner * (1 + np.vectorize(math.erf)(inner / math.sqrt(2))) / 2
        state = normal(f"{name}.output.LayerNorm", linear(f"{name}.output.dense", inner) + state)
    return state


def width_of(weights: Weights) -> int:
    return int(weights["embeddings.LayerNorm.bias"].shape[0])


def layers_of(weights: Weights) -> int:
    return sum(name.endswith("intermediate.dense.bias") for name in weights)


def random_weights(layers: int = 2, width: int = 32, vocabulary: int = len(WORDS) + 4, seed: int = 0) -> Weights:
    """Makes weights of a small BERT."""
    rng = np.random.default_rng(seed)

    def drawn(*shape: int) -> Array:
        found: Array = (rng.standard_normal(shape) * shape[-1] ** -0.5).astype(np.float32)
        return found

    sizes = {"word": vocabulary, "position": POSITIONS, "token_type": 2}
    found = {f"embeddings.{name}_embeddings.weight": drawn(size, width) for name, size in sizes.items()}
    dense: dict[str, tuple[int, int]] = {f"attention.self.{part}": (width, width) for part in ("query", "key", "value")}
    dense |= {"attention.output.dense": (width, width), "intermediate.dense": (4 * width, width)}
    dense |= {"output.dense": (width, 4 * width)}
    norms = ["embeddings.LayerNorm"]
    for name in (f"encoder.layer.{layer}" for layer in range(layers)):
        for part, (outputs, inputs) in dense.items():
            found |= {f"{name}.{part}.weight": drawn(outputs, inputs), f"{name}.{part}.bias": drawn(outputs)}
        norms += [f"{name}.attention.output.LayerNorm", f"{name}.output.LayerNorm"]
    return found | {f"{name}.{part}": 1 + drawn(width) for name in norms for part in ("weight", "bias")}


def folder(at: Path, weights: Weights, heads: int, tokenizer: str) -> Path:
    """Writes the folder of a sentence encoder (mean pooling, then length 1) with its ONNX export, and returns it.

    `tokenizer` is the text of tokenizer.json.
    """
    vocabulary, width = weights["embeddings.word_embeddings.weight"].shape
    config = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "hidden_size": width,
        "num_attention_heads": heads,
        "num_hidden_layers": layers_of(weights),
        "max_position_embeddings": POSITIONS,
        "vocab_size": vocabulary,
        "pad_token_id": 0,
    }
    parts = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate(parts)
    ]
    pooling = {"word_embedding_dimension": width, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
    written = {"config.json": config, "modules.json": modules, "1_Pooling/config.json": pooling}
    for name, said in written.items():
        (at / name).parent.mkdir(parents=True, exist_ok=True)
        (at / name).write_text(json.dumps(said))
    (at / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 256, "do_lower_case": False}))
    (at / "tokenizer.json").write_text(tokenizer)
    (at / "onnx").mkdir(exist_ok=True)
    (at / "onnx" / "model.onnx").write_bytes(bert(weights, heads))
    return at


def word_tokenizer() -> str:
    """Makes a tokenizer.json that knows `WORDS`, each by its number from 4 on."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors  # noqa: PLC0415  # an extra

    special = {PAD: 0, UNKNOWN: 1, FIRST: 2, LAST: 3}
    made = Tokenizer(models.WordLevel({**special, **{word: at for at, word in enumerate(WORDS, 4)}}, UNKNOWN))
    made.normalizer, made.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single=f"{FIRST} $A {LAST}", pair=f"{FIRST} $A {LAST} $B:1 {LAST}:1", special_tokens=[(FIRST, 2), (LAST, 3)]
    )
    made.enable_truncation(128)
    return str(made.to_str())
