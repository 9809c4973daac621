"""A model of fraud that takes the fields of payments: a scikit-learn pipeline with text categories and missing values.

Gradient boosting behind one-hot texts, converted by skl2onnx. Nothing here imports `worker`: a mistake there must not
hide here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any
from unittest import mock

import numpy as np
import skl2onnx
from numpy.typing import NDArray
from skl2onnx.common import tree_ensemble
from skl2onnx.common.data_types import FloatTensorType, Int64TensorType, StringTensorType
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from tests.payments import COUNTS, FLOATS, NO_DEVICE, TEXTS, Columns, columns, payments

TREES = 100
TRAINED_ON = 20_000  # payments


def table(given: Columns) -> NDArray[Any]:
    """Returns the columns as the scikit-learn pipeline takes them: one array of objects."""
    return np.concatenate([column.astype(object) for column in given.values()], axis=1)


@cache
def pipeline(trees: int = TREES, trained_on: int = TRAINED_ON) -> Any:
    """Returns the scikit-learn pipeline, trained on made-up payments: 0 is ok, 1 is fraud."""
    given, rng = columns(payments(trained_on, seed=1)), np.random.default_rng(2)
    odds = -2.0 + 1.5 * (given["amount"] > 60) + (given["hour"] < 6) + 2 * (given["category"] == "gift cards")
    odds = odds + (given["country"] == "NG") - (given["age_days"] > 700) + (given["device"] == NO_DEVICE)
    odds = odds + np.nan_to_num(given["distance_km"], nan=60.0) / 40 - 0.2 * given["previous"] / 10
    is_fraud = rng.random(trained_on) < 1 / (1 + np.exp(-odds[:, 0]))
    numbers = len(FLOATS) + len(COUNTS)
    encoded = ColumnTransformer(
        [
            ("numbers", "passthrough", [*range(numbers)]),
            ("texts", OneHotEncoder(handle_unknown="ignore", sparse_output=False), [*range(numbers, len(given))]),
        ]
    )
    boosted = HistGradientBoostingClassifier(max_iter=trees, random_state=0)
    return Pipeline([("encoded", encoded), ("boosted", boosted)]).fit(table(given), is_fraud.astype(np.int64))


@cache
def fraud(trees: int = TREES, trained_on: int = TRAINED_ON) -> bytes:
    """Converts the pipeline: an input (batch, 1) for each field → label INT64 (batch), probabilities (batch, 2)."""
    kinds = [(FloatTensorType, FLOATS), (Int64TensorType, COUNTS), (StringTensorType, TEXTS)]
    return _converted(pipeline(trees, trained_on), [(name, kind([None, 1])) for kind, names in kinds for name in names])


@cache
def fraud_in_a_block() -> bytes:
    """Converts the pipeline: numbers are one input `features` FP32 (batch, 8), texts are an input for each."""
    block = ("features", FloatTensorType([None, len(FLOATS) + len(COUNTS)]))
    return _converted(pipeline(), [block, *((name, StringTensorType([None, 1])) for name in TEXTS)])


@cache
def wide(floats: int, counts: int = 0, trees: int = 20) -> bytes:
    """Converts scaled floats and plain counts with boosted trees: an input (batch, 1) for each, f0 … and n0 …, FP32 and
    INT64 → label INT64 (batch), probabilities FP32 (batch, 2).
    """
    rng, width = np.random.default_rng(0), floats + counts
    given = rng.standard_normal((2_000, width)).round(2)
    given[:, floats:] = rng.integers(0, 9, (len(given), counts))
    steps = [("scaled", StandardScaler(), [*range(floats)]), ("plain", "passthrough", [*range(floats, width)])]
    boosted = HistGradientBoostingClassifier(max_iter=trees, random_state=0)
    trained = Pipeline([("columns", ColumnTransformer(steps)), ("boosted", boosted)])
    trained.fit(given, (given[:, 0] * given[:, 1] > given[:, -1] / 9).astype(np.int64))
    kinds = [(f"f{at}", FloatTensorType) for at in range(floats)] + [
        (f"n{at}", Int64TensorType) for at in range(counts)
    ]
    return _converted(trained, [(name, kind([None, 1])) for name, kind in kinds])


def _converted(trained: Any, inputs: Sequence[tuple[str, Any]]) -> bytes:
    with mock.patch.object(tree_ensemble, "add_node", _with_whole_numbers(tree_ensemble.add_node)):
        made = skl2onnx.to_onnx(
            trained,
            initial_types=list(inputs),
            options={id(trained): {"zipmap": False}},
            target_opset={"": 21, "ai.onnx.ml": 3},
        )
    return bytes(made.SerializeToString())


def _with_whole_numbers(add_node: Callable[..., None]) -> Callable[..., None]:
    """Returns the converter's step with a number where it gives a boolean, which protobuf 7 refuses (skl2onnx 1.20)."""
    tracks = "nodes_missing_value_tracks_true"
    return lambda *given, **named: add_node(*given, **{**named, tracks: int(named[tracks])})
