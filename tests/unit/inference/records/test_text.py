"""The preparation of texts: the encoder's inputs that it makes, and what it refuses at start."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from tests.readme import ROOT, blocks
from tests.unit.inference.records.tokenizer_files import bpe, saved, wordpiece
from worker.core.failures import BadConfiguration, Code, RowFault
from worker.core.records import Array
from worker.core.tensors.specs import TensorSpec
from worker.inference.hugging_face import Folder
from worker.inference.records.text import Texts, texts_of
from worker.settings.records_section import RecordsSettings

IDS, MASK, TYPES = (TensorSpec(name, "INT64", (None,)) for name in ("input_ids", "attention_mask", "token_type_ids"))
OF_BERT = (IDS, MASK, TYPES)


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    return saved(wordpiece(), tmp_path)


def section(tokenizer: Path | None = None, **others: Any) -> dict[str, Any]:
    return {"field": "body", "pair": None, "prefix": None, "tokenizer": tokenizer, "max_tokens": None, **others}


def feeds(*columns: list[str]) -> dict[str, Array]:
    return {name: np.array(column, object) for name, column in zip(("text", "text_pair"), columns, strict=False)}


def rows(texts: Texts, name: str, *columns: list[str]) -> list[list[int]]:
    return [row.tolist() for row in texts.prepare(feeds(*columns)).columns[name].rows]


def refusal(*arguments: Any) -> str:
    with pytest.raises(BadConfiguration) as refused:
        texts_of(*arguments)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_text_becomes_the_inputs_of_the_encoder(tokenizer: Path) -> None:
    """These are ids with special tokens, a mask of ones, and types of zeros; rows are as long as their texts."""
    texts = texts_of(section(tokenizer, max_tokens=6), OF_BERT)

    prepared = texts.prepare(feeds(["the fox", "", "the dog the dog the dog"]))

    plain = Tokenizer.from_file(str(tokenizer))
    expected = [plain.encode(text).ids for text in ("the fox", "", "the dog the dog")]
    assert [row.tolist() for row in prepared.columns["input_ids"].rows] == expected
    assert [row.tolist() for row in prepared.columns["attention_mask"].rows] == [[1] * 4, [1] * 2, [1] * 6]
    assert [row.tolist() for row in prepared.columns["token_type_ids"].rows] == [[0] * 4, [0] * 2, [0] * 6]
    assert {row.dtype for column in prepared.columns.values() for row in column.rows} == {np.dtype("i8")}
    assert prepared.faults == {}


def test_places_are_counted_where_the_model_takes_them(tokenizer: Path) -> None:
    """As exports of decoders do."""
    places = TensorSpec("position_ids", "INT64", (None,))
    texts = texts_of(section(tokenizer, max_tokens=6), [*OF_BERT, places])

    assert rows(texts, "position_ids", ["the fox", ""]) == [[0, 1, 2, 3], [0, 1]]


def test_a_prefix_begins_each_text(tokenizer: Path) -> None:
    """The setting says it, else the folder; the two texts of a pair have none."""
    folder = Folder(tokenizer.parent, prompt="the dog ")
    with_prefix = Tokenizer.from_file(str(tokenizer)).encode("the dog fox").ids

    def ids(*columns: list[str], **said: Any) -> list[int]:
        return rows(texts_of(section(tokenizer, max_tokens=9, **said), OF_BERT, folder), "input_ids", *columns)[0]

    assert ids(["fox"]) == with_prefix
    assert ids(["dog fox"], prefix="the ") == with_prefix
    assert ids(["the dog fox"], prefix="") == with_prefix
    assert ids(["fox"], ["dog"], pair="b") == Tokenizer.from_file(str(tokenizer)).encode("fox", "dog").ids


def test_a_prefix_that_cannot_be_as_asked_for_is_refused(tokenizer: Path) -> None:
    """A pair has no one text, and no token is left out of an embedding."""
    folder = Folder(tokenizer.parent, pools_prompt=False)

    assert "prefix: it begins a single text" in refusal(section(tokenizer, max_tokens=9, pair="b", prefix="q"), OF_BERT)
    told = refusal(section(tokenizer, max_tokens=9, prefix="q: "), OF_BERT, folder)
    assert "1_Pooling leaves the tokens of 'q: ' out of the embedding, which is not done here" in told


def test_texts_are_put_in_small_letters_where_the_folder_says_so(tmp_path: Path) -> None:
    """Sentence-transformers lowers them before a tokenizer that does not."""
    path = saved(bpe(), tmp_path)
    texts = texts_of(section(path, max_tokens=9), OF_BERT, Folder(tmp_path, is_lowered=True))

    assert rows(texts, "input_ids", ["The FOX"]) == [Tokenizer.from_file(str(path)).encode("the fox").ids]


def test_a_pair_becomes_one_row(tokenizer: Path) -> None:
    """The types tell its texts apart."""
    texts = texts_of(section(tokenizer, pair="title", max_tokens=9), OF_BERT)

    expected = Tokenizer.from_file(str(tokenizer)).encode("the fox", "dog")
    assert [str(spec) for spec in texts.takes] == ["text BYTES[batch]", "text_pair BYTES[batch]"]
    assert rows(texts, "input_ids", ["the fox"], ["dog"]) == [expected.ids]
    assert rows(texts, "token_type_ids", ["the fox"], ["dog"]) == [expected.type_ids]


def test_only_the_inputs_that_the_model_has_are_made(tokenizer: Path) -> None:
    """They are of its datatype, and its other inputs are left to others."""
    ids, mask = TensorSpec("input_ids", "INT32", (None,)), TensorSpec("attention_mask", "BOOL", (None,))
    texts = texts_of(section(tokenizer, max_tokens=9), [TensorSpec("weight", "FP32", ()), ids, mask])

    columns = texts.prepare(feeds(["the fox"])).columns

    assert list(texts.makes) == list(columns) == ["input_ids", "attention_mask"]
    assert [str(spec) for spec in texts.takes] == ["text BYTES[batch]"]
    assert [column.rows[0].dtype for column in columns.values()] == [np.dtype("i4"), np.dtype("bool")]


def test_the_pad_is_the_token_of_the_file(tmp_path: Path) -> None:
    """Else it is the folder's, else 0; the mask and the types are padded with 0."""
    plain, padding = wordpiece(), wordpiece()
    padding.enable_padding(pad_id=7, pad_token="[PAD]", length=20)  # noqa: S106 - a token of texts
    folder = Folder(tmp_path, pad_token=5)

    def pads(texts: Texts) -> list[object]:
        return [column.pad for column in texts.prepare(feeds(["fox"])).columns.values()]

    assert pads(texts_of(section(saved(plain, tmp_path), max_tokens=9), OF_BERT)) == [0, 0, 0]
    assert pads(texts_of(section(saved(plain, tmp_path), max_tokens=9), OF_BERT, folder)) == [5, 0, 0]
    texts = texts_of(section(saved(padding, tmp_path), max_tokens=9), OF_BERT, folder)
    assert pads(texts) == [7, 0, 0]
    assert len(rows(texts, "input_ids", ["fox"])[0]) == 3


def test_without_a_mask_no_row_is_padded(tokenizer: Path) -> None:
    """The model would take the pads for tokens."""
    texts = texts_of(section(tokenizer, max_tokens=9), [IDS, TYPES])

    assert [column.pad for column in texts.prepare(feeds(["fox"])).columns.values()] == [None, None]


def test_a_model_of_one_length_gets_rows_of_that_length(tokenizer: Path) -> None:
    """Shorter texts are padded, and longer ones are cut."""
    inputs = [TensorSpec(spec.name, "INT64", (5,)) for spec in OF_BERT]
    texts = texts_of(section(tokenizer), inputs, Folder(tokenizer.parent, pad_token=9))

    columns = texts.prepare(feeds(["fox", "the dog the dog"])).columns

    plain = Tokenizer.from_file(str(tokenizer))
    start, fox, end = plain.encode("fox").ids
    assert isinstance(columns["input_ids"].rows, np.ndarray)
    assert columns["input_ids"].rows[0].tolist() == [start, fox, end, 9, 9]
    assert columns["input_ids"].rows[1].tolist() == plain.encode("the dog the").ids
    assert columns["attention_mask"].rows[0].tolist() == [1, 1, 1, 0, 0]
    assert columns["token_type_ids"].rows[1].tolist() == [0, 0, 0, 0, 0]


def test_a_text_without_tokens_is_a_fault_of_its_row(tokenizer: Path) -> None:
    """The message names the field and quotes nothing. The other rows have their inputs."""
    texts = texts_of(section(tokenizer, field=("customer", "note"), max_tokens=9), OF_BERT)

    prepared = texts.prepare(feeds(["fox", "\udcff", "dog"]))

    message = "customer.note: expected a text without lone surrogates"
    assert prepared.faults == {1: RowFault(Code.INVALID_ARGUMENT, message)}
    assert [len(column.rows) for column in prepared.columns.values()] == [2, 2, 2]
    assert prepared.columns["input_ids"].rows[1].tolist() == Tokenizer.from_file(str(tokenizer)).encode("dog").ids


def test_both_fields_of_a_pair_are_named(tokenizer: Path) -> None:
    texts = texts_of(section(tokenizer, pair="title", max_tokens=9), OF_BERT)

    assert texts.prepare(feeds(["fox"], ["\udcff"])).faults[0].message.startswith("body and title: ")


# ---- How many tokens ------------------------------------------------------------------------------------------------


def most_tokens(texts: Texts) -> int:
    (row,) = rows(texts, "input_ids", ["fox " * 900])
    return len(row)


def test_the_number_of_tokens_is_the_first_that_is_said(tmp_path: Path) -> None:
    """The setting says it, else the folder, else the tokenizer's file, else the model by its positions or its shape."""
    plain, cutting = wordpiece(), wordpiece()
    cutting.enable_truncation(20)
    folder = Folder(tmp_path, max_tokens=30, positions=50)

    def most(tokenizer: Any, folder: Folder | None = None, **settings: Any) -> int:
        return most_tokens(texts_of(section(saved(tokenizer, tmp_path), **settings), OF_BERT, folder))

    assert most(cutting, folder, max_tokens=40) == 40
    assert most(cutting, folder) == 30
    assert most(cutting, Folder(tmp_path, positions=50)) == most(cutting) == 20
    assert most(plain, Folder(tmp_path, positions=50)) == 50
    assert most(cutting, Folder(tmp_path, positions=10)) == 10


def test_no_text_is_longer_than_the_longest_bucket(tokenizer: Path) -> None:
    """No run has a longer row."""
    folder = Folder(tokenizer.parent, max_tokens=20, positions=50)
    assert most_tokens(texts_of(section(tokenizer), OF_BERT, folder, 1, (4, 8))) == 8
    told = refusal(section(tokenizer, max_tokens=9), OF_BERT, folder, 1, (4, 8))
    assert told == "[records.text] max_tokens: 9 are more than the longest of BATCHING__BUCKETS, which is 8"


def test_more_tokens_than_the_model_takes_are_refused(tokenizer: Path) -> None:
    """The cure is in the message."""
    assert refusal(section(tokenizer, max_tokens=51), OF_BERT, Folder(tokenizer.parent, positions=50)) == (
        "[records.text] max_tokens: 51 are more than the model takes, which is 50"
    )


@pytest.mark.parametrize(
    ("settings", "inputs", "message"),
    [
        ({}, OF_BERT, r"max_tokens: write how many the model takes, as .*tokenizer\.json does not say"),
        ({"max_tokens": 2}, OF_BERT, "max_tokens: 2 are too few, as the tokenizer adds 2 itself"),
        ({"max_tokens": 3, "pair": "b"}, OF_BERT, "max_tokens: 3 are too few, as the tokenizer adds 3 itself"),
        ({"tokenizer": Path("nowhere.json")}, OF_BERT, r"tokenizer: nowhere\.json cannot be read: .*No such file"),
        ({"tokenizer": None}, OF_BERT, r"tokenizer: name the tokenizer\.json of the model"),
        ({}, [MASK], r"takes attention_mask INT64\[batch, \?\], and no input_ids"),
        (
            {},
            [TensorSpec("input_ids", "FP32", (None,))],
            r"input_ids FP32\[batch, \?\]: expected INT64\[batch, tokens\]",
        ),
        ({}, [TensorSpec("input_ids", "INT64", (2, 3))], r"input_ids INT64\[batch, 2, 3\]: expected INT64"),
    ],
)
def test_what_cannot_work_is_refused_at_start(
    settings: dict[str, Any], inputs: list[TensorSpec], message: str, tokenizer: Path
) -> None:
    """The message names the entry and the cure."""
    with pytest.raises(BadConfiguration, match=rf"^\[records\.text\] (the model )?{message}"):
        texts_of(section(**{"tokenizer": tokenizer, **settings}), inputs)


def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text('{"model": {"type": "Foo"}}')

    assert f"[records.text] tokenizer: {path} cannot be read: " in refusal(section(path), OF_BERT)


def test_a_folder_without_a_tokenizer_is_told_how_to_get_one(tmp_path: Path) -> None:
    assert "save_pretrained" in refusal(section(), OF_BERT, Folder(tmp_path))


def test_the_extra_is_named_where_it_is_missing(tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)

    assert "pip install 'inference-worker[text]'" in refusal(section(tokenizer, max_tokens=9), OF_BERT)


def test_the_settings_of_the_page_are_enough(tokenizer: Path) -> None:
    """The folder that they name says the rest."""
    (block,) = [block for block in blocks(ROOT / "docs" / "models.md") if block.name == "texts"]
    given = tomllib.loads(block.text)["records"]
    settings = RecordsSettings(**given).model_dump()["text"]
    folder = Folder(tokenizer.parent, tokenizer=tokenizer, max_tokens=20)

    assert most_tokens(texts_of(settings, OF_BERT, folder)) == 20
