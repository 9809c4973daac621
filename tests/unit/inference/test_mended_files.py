"""The lines of the page that mend a finished file, executed: a start refuses the model before, and takes it after."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from skl2onnx import to_onnx
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import MultiOutputClassifier

from tests import models
from tests.readme import ROOT
from tests.unit.inference.loading import arrays, loaded, refusal

ROWS = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
LABELS = (ROWS > 0).astype(int)


def line(about: str) -> str:
    """The line of the table's row about this."""
    section = (ROOT / "docs/models.md").read_text().partition("### Mending a finished file")[2].partition("\n#")[0]
    [row] = [row for row in section.splitlines() if row.startswith("|") and about in row]
    [code] = re.findall(r"\| [^|`]*`([^|]*)` \|$", row)
    return str(code)


def mended(model: bytes, code: str) -> bytes:
    """The model after this line."""
    file = onnx.load_from_string(model)
    exec(code, {"onnx": onnx, "model": file})  # noqa: S102 - the page's own
    return bytes(file.SerializeToString())


@pytest.mark.parametrize(
    ("model", "about"),
    [
        (models.fixed_batch(), "the number of rows is fixed"),
        (models.of_unknown_rank(), "has no shape in the file"),
        (models.with_loss(), "`loss`"),
    ],
)
def test_a_mended_model_is_taken(model: bytes, about: str, tmp_path: Path) -> None:
    assert refusal(model, tmp_path)

    loaded(mended(model, line(about)), tmp_path)


def test_the_probabilities_of_several_labels_become_one_tensor(tmp_path: Path) -> None:
    """A row has for each label the probabilities of its classes."""
    trained = MultiOutputClassifier(LogisticRegression()).fit(ROWS, LABELS)
    model = to_onnx(trained, ROWS[:1], options={"zipmap": False}).SerializeToString()
    code = line("MultiOutputClassifier").replace('"p"', '"probabilities"')

    assert "make a tensor of it (docs/models.md#mending-a-finished-file)" in refusal(model, tmp_path)
    _, by_label = arrays(loaded(mended(model, code), tmp_path).run({"X": ROWS}))

    np.testing.assert_allclose(by_label, np.stack(trained.predict_proba(ROWS), axis=1), atol=1e-6)


def test_a_forest_s_rows_come_first(tmp_path: Path) -> None:
    trained = RandomForestClassifier(5, random_state=0).fit(ROWS, LABELS)
    model = to_onnx(trained, ROWS[:1], options={"zipmap": False}).SerializeToString()
    node = re.compile(r"onnx\.helper\.make_node\(.*?\]?\)(?=\))")
    code = node.sub(line("random forest"), line("MultiOutputClassifier")).replace('"p"', '"probabilities"')

    assert "shape [3, 1, 2] came out" in refusal(model, tmp_path)
    _, by_label = arrays(loaded(mended(model, code), tmp_path).run({"X": ROWS}))

    np.testing.assert_allclose(by_label, np.stack(trained.predict_proba(ROWS), axis=1), atol=1e-6)
