"""A pipeline of scikit-learn that takes two cities and missing ages, and raises `ValueError` on any other city."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

ROWS = np.array([["Rome", 31.0], ["Oslo", np.nan], ["Rome", 54.0], ["Oslo", 23.0]], object)
FILE = "pipeline.joblib"


def train(folder: Path) -> Any:
    """Write the file that the model loads, and an example for its warm-up. Returns the pipeline."""
    columns = make_column_transformer((OneHotEncoder(), [0]), (SimpleImputer(), [1]))
    pipeline = make_pipeline(columns, LogisticRegression()).fit(ROWS, ["stays", "leaves", "stays", "leaves"])
    joblib.dump(pipeline, folder / FILE)
    np.savez(folder / "example.npz", city=ROWS[:, 0].astype(str), age=np.array([31, 40, 54, 23], np.float32))
    return pipeline


class Model:
    inputs = {"city": ("BYTES", [None]), "age": ("FP32", [None])}
    outputs = {"label": ("BYTES", [None]), "probabilities": ("FP32", [None, 2])}

    def load(self, folder: Path) -> None:
        self.pipeline = joblib.load(folder / FILE)

    def predict(self, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        rows = np.column_stack([feeds["city"], feeds["age"]])
        return {"label": self.pipeline.predict(rows), "probabilities": self.pipeline.predict_proba(rows)}
