"""`score` answers files of records by the mapping of the settings: JSON lines, CSV and Parquet."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from PIL import Image
from pyarrow import parquet

from tests.models import mlp, model, save
from worker.core.failures import BadConfiguration, Incomplete
from worker.tools.options import ScoreOrder
from worker.tools.score.command import score

# amount FP32 (batch, 1), name BYTES (batch, 1) → double FP32 (batch, 1), same BYTES (batch, 1)
DOUBLE = model(
    "float[batch, 1] amount, string[batch, 1] name => float[batch, 1] double, string[batch, 1] same",
    "double = Add(amount, amount)\nsame = Identity(name)",
)
SETTINGS = """
[records]
only = { type = ["pay"] }
[records.inputs]
name = "customer.name"
[records.answer]
keep = ["id"]
double = "double"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the model and the settings of records."""
    monkeypatch.setenv("WORKER_MODEL__DEVICE", "cpu")
    save(DOUBLE, tmp_path)
    (tmp_path / "worker.toml").write_text(SETTINGS)
    return tmp_path


def scored(folder: Path, name: str) -> tuple[list[Any], int]:
    """The lines of the answers, and the exit code."""
    order = ScoreOrder(
        model=folder / "model.onnx",
        file=folder / name,
        output=folder / "out.jsonl",
        config=folder / "worker.toml",
        force=True,
    )
    try:
        code = score(order)
    except Incomplete as incomplete:
        code = incomplete.exit_code
    return [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()], code


def payment(at: int, **more: Any) -> dict[str, Any]:
    return {"type": "pay", "id": at, "amount": at / 2, "customer": {"name": "Ann"}, **more}


def test_lines_are_records(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Records of another kind have no line, and are counted; a wrong one has its reason, and the exit code tells."""
    records = [payment(1), {"type": "other"}, payment(2, amount="much"), payment(3)]
    (folder / "r.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))

    answers, code = scored(folder, "r.jsonl")

    assert answers == [
        {"id": 1, "double": 1.0},
        {"error": "amount: expected a number, got a text", "code": "INVALID_ARGUMENT", "line": 3},
        {"id": 3, "double": 3.0},
    ]
    assert code == 7
    assert "1 line of another kind passed over ([records] only)" in capfd.readouterr().err


def test_a_null_in_its_envelope_is_as_the_settings_say(folder: Path) -> None:
    """As a worker treats it: an error, or passed over."""
    (folder / "r.jsonl").write_text(f"{json.dumps({'after': payment(1)})}\n{json.dumps({'after': None})}\n")
    enveloped = SETTINGS.replace("[records]", '[records]\nenvelope = "after"')

    (folder / "worker.toml").write_text(enveloped)
    assert [list(answer) for answer in scored(folder, "r.jsonl")[0]] == [["id", "double"], ["error", "code", "line"]]
    (folder / "worker.toml").write_text(f'[kafka]\nnull_value = "skip"\n{enveloped}')
    assert scored(folder, "r.jsonl") == ([{"id": 1, "double": 1.0}], 0)


def test_cells_of_a_csv_are_fields_by_the_names_in_its_first_line(folder: Path) -> None:
    """Numbers are read from their texts, a name with dots is a path, and an empty cell is missing."""
    (folder / "r.csv").write_text(
        "\ufeffid,type,amount,customer.name,unused\n"
        '1,pay,0.5,Ann,\n\n2,pay,1.5,"Bob, 2nd\nline",x\n3,pay,,Ann\n4,pay,a,Ann\n'
    )

    answers, code = scored(folder, "r.csv")

    assert answers == [
        {"id": "1", "double": 1.0},
        {"id": "2", "double": 3.0},
        {"error": "amount: missing", "code": "INVALID_ARGUMENT", "row": 3},
        {"error": "amount: expected a number, got a text", "code": "INVALID_ARGUMENT", "row": 4},
    ]
    assert code == 7


def test_answers_may_be_a_csv(folder: Path) -> None:
    """It has a column for each field, kept or made, and for the reason and the place of those without an answer."""
    records = [payment(1), payment(2, amount="much"), payment(3, id=[1, "a"]), payment(4, id=None)]
    (folder / "r.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    order = ScoreOrder(
        model=folder / "model.onnx",
        file=folder / "r.jsonl",
        output=folder / "out.csv",
        config=folder / "worker.toml",
    )

    with pytest.raises(Incomplete):
        score(order)

    assert (folder / "out.csv").read_text().splitlines() == [
        "id,double,error,code,line",
        "1,1.0,,,",
        ',,"amount: expected a number, got a text",INVALID_ARGUMENT,2',
        '"[1,""a""]",3.0,,,',
        ",4.0,,,",
    ]


FUNCTION = "def answer(outputs, record):\n    return {'id': 1}\n"


@pytest.mark.parametrize(
    ("name", "changed", "settings"),
    [
        ("out.csv", '["id"]', '"all"'),
        ("out.csv", "[records]\n", '[records]\nfunctions = "functions.py"\n'),
        ("out.parquet", "", ""),
    ],
)
def test_an_output_without_known_columns_is_refused(folder: Path, name: str, changed: str, settings: str) -> None:
    """JSON lines have no columns, and a function's fields no names beforehand."""
    (folder / "functions.py").write_text(FUNCTION)
    (folder / "worker.toml").write_text(f"[model]\nhost = 'thread'\n{SETTINGS.replace(changed, settings)}")
    (folder / "r.jsonl").write_text("{}\n")

    with pytest.raises(BadConfiguration, match="JSON lines"):
        score(
            ScoreOrder(
                model=folder / "model.onnx",
                file=folder / "r.jsonl",
                output=folder / name,
                config=folder / "worker.toml",
            )
        )


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "the first line must name the columns"),
        (b"a,a\n1,2\n", "each with another name"),
        (b"a,ab,a.b\n1,2,3\n", "column a is a value, and a.b a field in it"),
        (b"a.b.c,a.b\n1,2\n", "column a.b is a value, and a.b.c a field in it"),
        (b"id,type\n1,pay,3\n", "line 2 has 3 cells, and the first line has 2"),
        (b"id,type\n\xff,pay\n", "cannot be read on as CSV in UTF-8"),
        (b'id,type\n"1"2,pay\n', "cannot be read on as CSV in UTF-8"),
    ],
)
def test_a_csv_that_is_none_is_refused(folder: Path, content: bytes, told: str) -> None:
    """The place is named where it goes wrong."""
    (folder / "r.csv").write_bytes(content)

    with pytest.raises((BadConfiguration, Incomplete), match=told):
        score(ScoreOrder(model=folder / "model.onnx", file=folder / "r.csv", config=folder / "worker.toml"))


def test_rows_of_a_parquet_file_are_records(folder: Path) -> None:
    """Decimals, instants and null come as on a topic."""
    rows = [payment(1, amount=Decimal("0.5"), paid=datetime(2026, 1, 1, tzinfo=UTC)), payment(2, amount=None)]
    parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "r.parquet")

    answers, code = scored(folder, "r.parquet")

    assert answers[0] == {"id": 1, "double": 1.0}
    assert answers[1]["error"] == "amount: expected a number, got null"
    assert code == 7


@pytest.mark.parametrize(("kept", "told"), [(0, "cannot be read as Parquet"), (0.5, "cannot be read")])
def test_a_damaged_parquet_file_is_told(folder: Path, kept: float, told: str) -> None:
    """Its answers so far are a part."""
    parquet.write_table(pyarrow.Table.from_pylist([payment(at) for at in range(100)]), folder / "r.parquet")
    whole = (folder / "r.parquet").read_bytes()
    end = b"" if kept == 0 else whole[-2000:]
    (folder / "r.parquet").write_bytes(whole[: int(len(whole) * kept)] + end)

    with pytest.raises((BadConfiguration, Incomplete), match=told):
        score(ScoreOrder(model=folder / "model.onnx", file=folder / "r.parquet", config=folder / "worker.toml"))


def test_without_pyarrow_its_extra_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader installs it, or writes a CSV."""
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (folder / "r.parquet").write_bytes(b"PAR1")

    with pytest.raises(BadConfiguration, match=r"pip install 'inference-worker\[parquet\]'"):
        score(ScoreOrder(model=folder / "model.onnx", file=folder / "r.parquet", config=folder / "worker.toml"))


@pytest.mark.parametrize(("name", "config"), [("r.csv", None), ("r.npy", "worker.toml")])
def test_a_file_that_the_settings_cannot_score_is_refused(folder: Path, name: str, config: str | None) -> None:
    """Rows of numbers are no records, and records need a mapping."""
    (folder / name).write_bytes(b"x")
    save(mlp(), folder)

    with pytest.raises(BadConfiguration, match=r"\[records\]"):
        score(
            ScoreOrder(
                model=folder / "model.onnx", file=folder / name, config=None if config is None else folder / config
            )
        )


def test_all_of_a_file_is_one_record_where_values_are_bytes(folder: Path) -> None:
    """A picture has no lines."""
    save(model("float[batch, 3, 1, 1] pixels => float[batch, 3, 1, 1] seen", "seen = Identity(pixels)"), folder)
    (folder / "worker.toml").write_text(
        '[records]\nencoding = "bytes"\n[records.image]\nfield = "$value"\nlayout = "NCHW"\nscale = 1.0\n'
        '[records.answer]\nred = "seen[0, 0, 0]"\n'
    )
    Image.new("RGB", (1, 1), (200, 0, 0)).save(folder / "red.png")
    assert b"\n" in (folder / "red.png").read_bytes()

    assert scored(folder, "red.png") == ([{"red": 200.0}], 0)
