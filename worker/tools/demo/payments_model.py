"""The program that made `payments.onnx`: `python worker/tools/demo/payments_model.py`, with scikit-learn and skl2onnx.

The payments are made up. A model of fraud takes three numbers and a text of each, and gives a probability.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType, StringTensorType
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

COUNTRIES = ("DE", "FR", "GB", "NL", "NG", "US")
PAYMENTS = 20_000


def main() -> None:
    """Write `payments.onnx`: features FP32 (batch, 3), country BYTES (batch, 1) → label, probabilities (batch, 2)."""
    rng = np.random.default_rng(0)
    amount = rng.lognormal(3.5, 1.2, PAYMENTS)
    age_days, hour = rng.gamma(2.0, 300.0, PAYMENTS), rng.integers(0, 24, PAYMENTS)
    country = rng.choice(COUNTRIES, PAYMENTS)
    odds = -4.0 + 2.5 * (amount > 200) + 2.0 * (age_days < 30) + 1.5 * (hour < 6) + 1.0 * (country == "NG")
    is_fraud = rng.random(PAYMENTS) < 1 / (1 + np.exp(-odds))

    columns = np.column_stack([amount, age_days, hour, country]).astype(object)
    encoded = ColumnTransformer(
        [("numbers", "passthrough", [0, 1, 2]), ("country", OneHotEncoder(handle_unknown="ignore"), [3])]
    )
    model = make_pipeline(encoded, GradientBoostingClassifier(n_estimators=40, random_state=0))
    model.fit(columns, is_fraud.astype(np.int64))

    inputs = [("features", FloatTensorType([None, 3])), ("country", StringTensorType([None, 1]))]
    onnx = to_onnx(model, initial_types=inputs, options={"zipmap": False}, target_opset={"": 21, "ai.onnx.ml": 3})
    Path(__file__).with_name("payments.onnx").write_bytes(onnx.SerializeToString())


if __name__ == "__main__":
    main()
