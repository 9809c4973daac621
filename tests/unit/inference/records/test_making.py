"""A model of records is made of a loaded one, as `[records]` says."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests import models
from tests.unit.inference.loading import arrays
from worker.core.failures import BadConfiguration
from worker.inference.facts import ModelFacts, Runnable
from worker.inference.served_model import load_served
from worker.settings import BatchingSettings, ModelSettings
from worker.settings.records_section import RecordsSettings

WITH_STATE = models.model(
    "float[batch, 1] x, float[batch, 1] total => float[batch, 1] y, float[batch, 1] next",
    "y = Neg(x) next = Add(x, total)",
)


def served(folder: Path, **answer: Any) -> tuple[Runnable, ModelFacts]:
    """A model whose state is the sum of its inputs so far."""
    section = SimpleNamespace(**RecordsSettings(answer=answer).model_dump())
    model = ModelSettings(path=models.save(WITH_STATE, folder), device="cpu")
    return load_served(model, BatchingSettings(), section, {"total": "next"})  # type: ignore[arg-type]  # plain values


@pytest.mark.parametrize(
    ("answer", "fields"),
    [({}, {"y": [-2]}), ({"level": "next"}, {"level": [5]}), ({"z": "y", "level": "next"}, {"z": [-2], "level": [5]})],
)
def test_a_next_state_may_be_a_field_and_stays_a_state(
    answer: dict[str, str], fields: dict[str, list[int]], tmp_path: Path
) -> None:
    """A field is one only where it is named."""
    model, facts = served(tmp_path, **answer)

    found = arrays(model.run({"x": np.array([[2]], np.float32), "total": np.array([[3]], np.float32)}))

    named = {spec.name: values.tolist() for spec, values in zip(facts.signature.outputs, found, strict=True)}
    assert named == {**fields, "next": [[5]]}


def test_a_field_with_the_name_of_a_state_is_refused(tmp_path: Path) -> None:
    """Two outputs would have one name."""
    with pytest.raises(BadConfiguration, match=r"\[records.answer\] next: this is a state's name: call the field"):
        served(tmp_path, next="y")
