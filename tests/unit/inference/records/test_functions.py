"""The operator's functions are called with records, and what they raise or return is judged row by row."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from tests.readme import ROOT, blocks
from tests.unit.inference.records.tokenizer_files import wordpiece
from worker.core.failures import BadConfiguration, Code, RowFault
from worker.core.records import Array
from worker.core.tensors.specs import TensorSpec
from worker.inference.records.functions import (
    RECORD,
    Function,
    MadeAnswer,
    MadeInputs,
    copied,
    functions_in,
)
from worker.inference.records.parts import Prepared, RowsFailed

X = TensorSpec("x", "FP32", (2,))
TOKENS = TensorSpec("ids", "INT64", (None,))
HARMLESS = "def inputs(record):\n    return {'x': [record['a'], 0]}"


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file leaves its folder to its process."""
    monkeypatch.setattr(sys, "path", [*sys.path])


def written(folder: Path, text: str) -> Path:
    path = folder / "functions.py"
    path.write_text("import numpy as np\n" + dedent(text), encoding="utf-8")
    return path


def function(folder: Path, text: str) -> Function:
    """The one function of a file with this text behind its first line."""
    functions = functions_in(written(folder, text))
    [found] = [one for one in functions if one is not None]
    return found


def rows(*records: Mapping[str, Any]) -> dict[str, Array]:
    """The feeds of these records."""
    feed: Array = np.empty(len(records), object)
    feed[:] = records
    return {RECORD.name: feed}


def prepared(
    folder: Path, text: str, *records: Mapping[str, Any], makes: Sequence[TensorSpec] = (X,), strict: bool = True
) -> Prepared:
    found = functions_in(written(folder, text)).inputs
    assert found is not None
    return MadeInputs(found, makes, refuse_non_finite=strict).prepare(rows(*records))


def made(found: Prepared) -> dict[str, list[Any]]:
    """The rows of each input, as lists. No row may have a fault."""
    assert not found.faults
    return {name: [np.asarray(row).tolist() for row in column.rows] for name, column in found.columns.items()}


def concluded(
    folder: Path, text: str, outputs: Mapping[str, Array], *records: Mapping[str, Any], strict: bool = True
) -> list[Any]:
    found = MadeAnswer(function(folder, text), refuse_non_finite=strict).conclude(outputs, rows(*records))
    assert found.shape == (len(records),)
    return list(found)


def failed(folder: Path, text: str, outputs: Mapping[str, Array], *records: Mapping[str, Any]) -> Mapping[int, Any]:
    with pytest.raises(RowsFailed) as raised:
        concluded(folder, text, outputs, *records)
    return raised.value.faults


def p(*values: float) -> dict[str, Array]:
    """The output p of a run, two columns for each row."""
    return {"p": np.array([[1 - value, value] for value in values], np.float32)}


both_forms = pytest.mark.parametrize("of_batch", [False, True], ids=["each", "batch"])

# ---- Inputs ---------------------------------------------------------------------------------------------------------


@both_forms
def test_a_record_becomes_a_row_of_each_input(tmp_path: Path, *, of_batch: bool) -> None:
    """Numbers take the datatype of the model, and texts are texts."""
    each = "{'x': [record['a'], 0.5], 'name': record['name']}"
    batch = "{'x': [[r['a'], 0.5] for r in records], 'name': [r['name'] for r in records]}"
    text = f"def inputs_batch(records): return {batch}" if of_batch else f"def inputs(record): return {each}"

    found = prepared(
        tmp_path, text, {"a": 1, "name": "é"}, {"a": 2, "name": ""}, makes=(X, TensorSpec("name", "BYTES", ()))
    )

    assert made(found) == {"x": [[1, 0.5], [2, 0.5]], "name": ["é", ""]}
    assert np.asarray(found.columns["x"].rows).dtype == np.float32


def test_lengths_may_differ_between_rows_where_the_model_leaves_them_open(tmp_path: Path) -> None:
    """Rows of one length are one array, which costs less."""
    text = "def inputs(record): return {'ids': np.arange(record['n'])}"

    several = prepared(tmp_path, text, {"n": 2}, {"n": 0}, {"n": 1}, makes=(TOKENS,))
    alike = prepared(tmp_path, text, {"n": 2}, {"n": 2}, makes=(TOKENS,))

    assert made(several) == {"ids": [[0, 1], [], [0]]}
    assert isinstance(alike.columns["ids"].rows, np.ndarray)
    assert several.columns["ids"].pad is None


@both_forms
def test_a_function_may_write_to_its_record_and_return_one_array_again_and_again(
    tmp_path: Path, *, of_batch: bool
) -> None:
    """The record runs again if its batch fails, and later functions see it as it came."""
    text = """
        kept = np.zeros((2, 2), np.float32)
        def inputs_batch(records):
            for row, record in enumerate(records):
                kept[row] = record["a"].pop(), len(record["b"]["c"])
                record["b"]["c"].clear()
            return {"x": kept[:len(records)]}
    """ if of_batch else """
        kept = np.zeros(2, np.float32)
        def inputs(record):
            kept[:] = record["a"].pop(), len(record["b"]["c"])
            record["b"]["c"].clear()
            return {"x": kept}
    """  # fmt: skip
    records = [{"a": [1, 2], "b": {"c": [{"d": 1}]}}, {"a": [3], "b": {"c": []}}]

    maker = MadeInputs(function(tmp_path, text), [X], refuse_non_finite=True)
    first, again = maker.prepare(rows(*records)), maker.prepare(rows(*records))

    assert made(first) == made(again) == {"x": [[2, 1], [3, 0]]}
    assert records == [{"a": [1, 2], "b": {"c": [{"d": 1}]}}, {"a": [3], "b": {"c": []}}]


RAISING = "def inputs(record):\n    a = record['a']\n    return {'x': [{0: 1.0}[a] if a < 9 else int('nine'), 0]}"
RAISING_BATCH = RAISING.replace("def inputs(record)", "def one(record)") + (
    "\ndef inputs_batch(records):\n    return {'x': np.array([one(r)['x'] for r in records], np.float32)}"
)


@pytest.mark.parametrize("text", [RAISING, RAISING_BATCH], ids=["each", "batch"])
def test_what_a_function_raises_is_the_fault_of_its_row(text: str, tmp_path: Path) -> None:
    """A `ValueError` is the publisher's, any other the operator's. The log gets the line, and no message."""
    found = prepared(tmp_path, text, {"a": 0}, {"a": 7}, {"a": 9})

    assert found.faults == {
        1: RowFault(Code.INTERNAL, "KeyError: 7", "KeyError at functions.py:4"),
        2: RowFault(
            Code.INVALID_ARGUMENT,
            "invalid literal for int() with base 10: 'nine'",
            "ValueError at functions.py:4",
        ),
    }


def test_a_batch_that_fails_although_each_of_its_records_is_right_is_made_of_them(tmp_path: Path) -> None:
    """The function does not take so many at once."""
    text = """
        def inputs_batch(records):
            if len(records) > 1:
                raise ValueError("one, please")
            return {"ids": np.arange(records[0]["n"])[None]}
    """

    assert made(prepared(tmp_path, text, {"n": 1}, {"n": 3}, makes=(TOKENS,))) == {"ids": [[0], [0, 1, 2]]}


@both_forms
@pytest.mark.parametrize("error", ["MemoryError()", "RuntimeError('CUDA out of memory')"])
def test_a_lack_of_memory_is_nobodys_fault(error: str, tmp_path: Path, *, of_batch: bool) -> None:
    """It leaves as it is, so that the batch runs in parts."""
    name = "inputs_batch(records)" if of_batch else "inputs(record)"

    with pytest.raises((MemoryError, RuntimeError)):
        prepared(tmp_path, f"def {name}: raise {error}", {})


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("[1, 2]", "inputs gave list, and a dict of arrays is needed"),
        ("None", "inputs gave NoneType, and a dict of arrays is needed"),
        ("{}", "inputs gave nothing, and x is needed"),
        ("{'x': [1, 2], 'y': 1}", "inputs gave x, y, and x is needed"),
        ("{'x': [1, 2, 3]}", "input x: inputs gave int64 of shape [3], and FP32 of shape [2] is needed"),
        ("{'x': [[1, 2]]}", "input x: inputs gave int64 of shape [1, 2], and FP32 of shape [2] is needed"),
        ("{'x': ['1', '2']}", "input x: inputs gave <U1 of shape [2], and FP32 of shape [2] is needed"),
        ("{'x': [None, 0]}", "input x: inputs gave object of shape [2] (its values do not fit), and FP32 of sha"),
        ("{'x': [[1], [1, 2]]}", "input x: inputs gave no array: "),
    ],
)  # fmt: skip
def test_what_is_no_input_of_the_model_is_the_fault_of_its_row(given: str, says: str, tmp_path: Path) -> None:
    """The message says what was needed and what came, and no value."""
    text = f"def inputs(record): return {given} if record['a'] else {{'x': [1, 2]}}"

    [(row, fault)] = prepared(tmp_path, text, {"a": 0}, {"a": 1}).faults.items()

    assert (row, fault.code) == (1, Code.INTERNAL)
    assert fault.message.startswith(says)


def test_a_batch_of_another_number_of_rows_is_asked_for_again(tmp_path: Path) -> None:
    """It is not known which row is whose."""
    text = """
        def inputs_batch(records):
            return {"x": np.array([[record["a"], 0] for record in records if record["a"]], np.float32)}
    """

    found = prepared(tmp_path, text, {"a": 1}, {"a": 0})

    message = "input x: inputs_batch gave float32 of shape [0], and FP32 of shape [1, 2] is needed"
    assert found.faults == {1: RowFault(Code.INTERNAL, message)}


@both_forms
def test_inputs_that_are_not_finite_are_refused_unless_the_model_takes_them(tmp_path: Path, *, of_batch: bool) -> None:
    """The setting for requests counts here, too."""
    each, batch = "{'x': [record['a'], 0.5]}", "{'x': [[record['a'], 0.5] for record in records]}"
    text = f"def inputs_batch(records): return {batch}" if of_batch else f"def inputs(record): return {each}"
    records = [{"a": 1.0}, {"a": float("nan")}, {"a": float("inf")}]

    refused = prepared(tmp_path, text, *records)
    allowed = prepared(tmp_path, text, *records, strict=False)

    fault = RowFault(Code.INVALID_ARGUMENT, "input x: holds NaN or infinity")
    assert refused.faults == {1: fault, 2: fault}
    assert len(made(allowed)["x"]) == 3


def test_rows_of_different_lengths_are_judged_one_by_one(tmp_path: Path) -> None:
    """Integers are always finite, and need no look."""
    text = "def inputs(record): return {'v': np.full(record['n'], record['v']), 'ids': np.zeros(record['n'], int)}"
    v = TensorSpec("v", "FP64", (None,))

    found = prepared(tmp_path, text, {"n": 1, "v": 0.0}, {"n": 2, "v": np.nan}, {"n": 0, "v": 0.0}, makes=(v, TOKENS))

    assert list(found.faults) == [1]


def test_a_function_that_has_nothing_to_make_is_refused(tmp_path: Path) -> None:
    """The mapping would be ignored, or the function."""
    with pytest.raises(BadConfiguration, match=r"^\[records\] functions: inputs has no input to make"):
        MadeInputs(function(tmp_path, HARMLESS), (), refuse_non_finite=True)


# ---- Answers --------------------------------------------------------------------------------------------------------


@both_forms
def test_an_answer_is_made_of_outputs_and_the_record(tmp_path: Path, *, of_batch: bool) -> None:
    """Its values are plain ones."""
    text = """
        def answer_batch(outputs, records):
            return [{"score": score, "id": record["id"]} for score, record in zip(outputs["p"][:, 1], records)]
    """ if of_batch else """
        def answer(outputs, record):
            return {"score": outputs["p"][1], "id": record["id"]}
    """  # fmt: skip

    found = concluded(tmp_path, text, p(0.25, 0.5), {"id": "a"}, {"id": "b"})

    assert found == [{"score": 0.25, "id": "a"}, {"score": 0.5, "id": "b"}]
    assert {type(one["score"]) for one in found} == {float}


@both_forms
def test_an_answer_may_write_to_outputs_and_record(tmp_path: Path, *, of_batch: bool) -> None:
    """Other fields of the answer are made of the outputs, and other functions of the record."""
    text = """
        def answer_batch(outputs, records):
            outputs["p"][:] = 0
            return [{"a": record.pop("a")} for record in records]
    """ if of_batch else """
        def answer(outputs, record):
            outputs["p"][:] = 0
            return {"a": record.pop("a")}
    """  # fmt: skip
    outputs, record = p(0.25), {"a": 1}

    assert concluded(tmp_path, text, outputs, record) == [{"a": 1}]
    assert outputs["p"].tolist() == [[0.75, 0.25]]
    assert record == {"a": 1}


ANSWERING = """
def of_one(p, record):
    if record["a"] == 1:
        raise ValueError("no customer")
    return {"score": {0: p, 2: np.nan, 3: {"at": object()}, 4: None}[record["a"]]}
"""


@pytest.mark.parametrize(
    "text",
    [
        "def answer(outputs, record): return of_one(outputs['p'][1], record)",
        "def answer_batch(outputs, records): return [of_one(*one) for one in zip(outputs['p'][:, 1], records)]",
    ],
    ids=["each", "batch"],
)
def test_an_answer_that_cannot_be_made_is_the_fault_of_its_row(text: str, tmp_path: Path) -> None:
    """The others could be made."""
    name = text[4 : text.index("(")]

    faults = failed(
        tmp_path, ANSWERING + text, p(0.1, 0.2, 0.3, 0.4, 0.5, 0.6), *[{"a": at} for at in (0, 1, 2, 3, 4, 5)]
    )

    assert faults == {
        1: RowFault(Code.INVALID_ARGUMENT, "no customer", "ValueError at functions.py:5"),
        2: RowFault(Code.INTERNAL, f"{name} gave NaN or infinity in score"),
        3: RowFault(Code.INTERNAL, f"{name} gave object in score.at"),
        5: RowFault(Code.INTERNAL, "KeyError: 5", "KeyError at functions.py:6"),
    }


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("None", "answer_batch gave NoneType, and a list of 1 dicts is needed"),
        ("[{}, {}, {}]", "answer_batch gave 3 answers, and a list of 1 dicts is needed"),
        ("[1 for _ in records]", "answer_batch gave int, and a dict is needed"),
    ],
)
def test_a_batch_of_what_are_no_answers_is_nobodys_answers(given: str, says: str, tmp_path: Path) -> None:
    """It is called for each record alone, and each says what came."""
    faults = failed(tmp_path, f"def answer_batch(outputs, records): return {given}", p(0.1, 0.2), {}, {})

    assert faults == dict.fromkeys(range(2), RowFault(Code.INTERNAL, says))


def test_nan_in_an_answer_passes_where_the_model_may_give_it(tmp_path: Path) -> None:
    """The setting for outputs counts here, too."""
    [found] = concluded(tmp_path, "def answer(outputs, record): return {'x': np.nan}", p(0.5), {}, strict=False)

    assert np.isnan(found["x"])


# ---- The file -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def inputs(record:", r"it cannot be imported: functions.py: SyntaxError: .*line 2"),
        ("import no_such_library", r"it cannot be imported: functions.py:2: ModuleNotFoundError: .*; install it where"),
        ("\n\n1 / 0", r"it cannot be imported: functions.py:4: ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", r"it cannot be imported: functions.py:2: SystemExit: 3"),
        ("", r"it needs one of the functions inputs, inputs_batch, answer, answer_batch, and has none"),
        ("inputs = 3", r"inputs must be a function of \(record\): 3 is not a callable object"),
        (
            "def inputs(): ...",
            r"functions.py:2: inputs must be a function of \(record\): too many positional arguments",
        ),
        (
            "def answer_batch(outputs): ...",
            r"functions.py:2: answer_batch must be a function of \(outputs, records\): too many positional arguments",
        ),
        ("def answer(a, b): ...\ndef answer_batch(a, b): ...", "it has answer and answer_batch: leave one of them out"),
    ],
    ids=lambda value: value.splitlines()[0] if value.strip() else "empty",
)
def test_a_file_without_usable_functions_is_refused(text: str, says: str, tmp_path: Path) -> None:
    """The one line names the setting, the file and the place in it."""
    path = written(tmp_path, text)

    with pytest.raises(BadConfiguration, match=says) as refused:
        functions_in(path)

    assert str(refused.value).startswith(f"[records] functions: {path}: ")
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """The line says so."""
    with pytest.raises(BadConfiguration, match=r"nowhere\.py: it cannot be read: No such file or directory"):
        functions_in(tmp_path / "nowhere.py")


def test_the_pages_functions_are_called(tmp_path: Path) -> None:
    """The page's records give what it says."""
    [text] = [block.text for block in blocks(ROOT / "docs/records.md") if block.name == "record-functions"]
    functions = functions_in(written(tmp_path, text))
    assert functions.inputs is not None
    assert functions.answer is not None
    features = TensorSpec("features", "FP32", (3,))
    records: list[dict[str, Any]] = [
        {"currency": "USD", "amount": 200, "items": [1, 2]},
        {"currency": "EUR", "amount": 3, "items": []},
    ]

    found = MadeInputs(functions.inputs, [features], refuse_non_finite=True).prepare(rows(*records))
    [refused] = prepared(tmp_path, text, {"currency": "X"}, makes=[features]).faults.values()
    outputs = {"probabilities": np.array([[0.25, 0.75], [0.25, 0.75]], np.float32)}
    answers = MadeAnswer(functions.answer, refuse_non_finite=True).conclude(outputs, rows(*records))

    np.testing.assert_allclose(made(found)["features"], [[180, np.log(181), 2], [3, np.log(4), 0]], rtol=1e-6)
    assert refused == RowFault(
        Code.INVALID_ARGUMENT, "currency: expected one of EUR, USD", "ValueError at functions.py:9"
    )
    assert list(answers) == [{"score": 0.75, "action": "review"}, {"score": 0.75, "action": "pass"}]


def test_the_pages_function_finds_names_by_the_labels_of_tokens(tmp_path: Path) -> None:
    """It takes each token's part of the text, and none of the padding."""
    [text] = [block.text for block in blocks(ROOT / "docs/models.md") if block.name == "token-labels"]
    tokenizer = wordpiece()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    functions = functions_in(written(tmp_path, text))
    assert functions.answer is not None
    logits = np.zeros((1, len(tokenizer.encode("dog and fox").ids) + 3, 3), np.float32)
    logits[:, :, 1] = 1
    logits[:, 2, 0] = 2  # the token after [CLS] dog

    answers = MadeAnswer(functions.answer, refuse_non_finite=True).conclude(
        {"logits": logits}, rows({"body": "dog and fox"})
    )

    assert list(answers) == [{"names": [["PERSON", "dog"], ["PERSON", "fox"]]}]


def test_modules_next_to_the_file_can_be_imported(tmp_path: Path) -> None:
    """Its tables may lie there, for example."""
    (tmp_path / "countries_of_ours.py").write_text("NUMBER = {'DE': 3}")
    text = "from countries_of_ours import NUMBER\ndef inputs(record): return {'x': [NUMBER[record['c']], 0]}"

    assert made(prepared(tmp_path, text, {"c": "DE"})) == {"x": [[3, 0]]}


def test_a_copy_of_a_record_shares_nothing_that_can_be_changed() -> None:
    """Its dicts and lists are copies at every depth."""
    record = {"a": [1, {"b": [2]}], "c": {"d": {}}, "e": "text"}

    other = copied(record)
    other["a"][1]["b"].append(3)
    other["c"]["d"]["x"] = 1

    assert record == {"a": [1, {"b": [2]}], "c": {"d": {}}, "e": "text"}
    assert other == {"a": [1, {"b": [2, 3]}], "c": {"d": {"x": 1}}, "e": "text"}
