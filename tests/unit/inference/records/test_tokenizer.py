"""The bounded tokenizer: it gives the tokens that the library gives by itself, within a bound on time and memory."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from tests.unit.inference.records import tokenizer_files
from tests.unit.inference.records.tokenizer_files import KINDS, SENTENCES, made, saved
from worker.core.failures import Code, RowFault
from worker.inference.records.tokenizer import BoundedTokenizer, Text, Tokens, share_cores

HOSTILE = (
    "",
    " ",
    "\0",
    "\x01\x02\x7f\x85\u2028\ufeff\ufffe",
    "a\u0301\u0301\u0301" * 9,
    "\u0301",
    "[CLS] [SEP] [MASK][PAD] <s> </s> <mask><pad>",
    "[MAS",
    "a     <mask>",
    "ﷺ" * 3,
    "👩‍👩‍👧‍👦🏽",
    "中" * 30,
    "x" * 300,
    "  \t\n  " * 9,
    "\U0010ffff\ue000",
)
WORDS = [word for text in SENTENCES for word in text.split()] + list(HOSTILE)


def texts(seed: int, count: int, longest: int) -> list[str]:
    """Random texts of words and of what is hostile, with and without blanks between."""
    chosen = random.Random(seed)
    found = []
    for _ in range(count):
        words = chosen.choices(WORDS, k=chosen.randrange(longest))
        found.append("".join(word + chosen.choice(("", " ", " ", "  ", "\n")) for word in words))
    return [*HOSTILE, *found]


def by_the_library(tokenizer: Tokenizer, rows: Sequence[Text]) -> list[Tokens | None]:
    """What the library gives with a truncation of its own; None: it refuses the text, or gives no token."""
    found: list[Tokens | None] = []
    for row in rows:
        try:
            encoding = tokenizer.encode(*row) if isinstance(row, tuple) else tokenizer.encode(row)
        except Exception:  # noqa: BLE001 - it raises no other type
            found.append(None)
        else:
            found.append(Tokens(encoding.ids, encoding.type_ids) if encoding.ids else None)
    return found


def without_faults(found: Sequence[Tokens | RowFault]) -> list[Tokens | None]:
    return [None if isinstance(one, RowFault) else one for one in found]


@pytest.mark.parametrize("direction", ["right", "left"])
@pytest.mark.parametrize("kind", KINDS)
def test_single_texts_give_the_tokens_of_the_library(kind: str, direction: str, tmp_path: Path) -> None:
    """Whatever the texts hold, and wherever the file says that they are cut."""
    tokenizer = made(kind)
    for limit in (3, 4, 33):
        tokenizer.enable_truncation(limit, direction=direction)
        rows = texts(limit, 250, 30)

        bounded = BoundedTokenizer(saved(tokenizer, tmp_path), is_pair=False, has_types=True)

        assert without_faults(bounded.tokens(rows)) == by_the_library(tokenizer, rows)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("direction", ["right", "left"])
@pytest.mark.parametrize("strategy", ["longest_first", "only_first", "only_second"])
def test_pairs_give_the_tokens_of_the_library(kind: str, direction: str, strategy: str, tmp_path: Path) -> None:
    """By each of its rules of which text is cut, and refusals where it refuses."""
    tokenizer = made(kind)
    for limit in (5, 12):
        tokenizer.enable_truncation(limit, direction=direction, strategy=strategy)
        rows: list[Text] = list(zip(texts(limit, 90, 6), texts(limit + 1, 90, 6), strict=True))

        bounded = BoundedTokenizer(saved(tokenizer, tmp_path), is_pair=True, has_types=True)

        assert without_faults(bounded.tokens(rows)) == by_the_library(tokenizer, rows)


@pytest.mark.parametrize("kind", KINDS)
def test_the_beginning_of_a_long_text_is_enough(kind: str, tmp_path: Path) -> None:
    """A text of many times the tokens is read at its beginning only, and the tokens are those of the whole."""
    tokenizer = made(kind)
    tokenizer.enable_truncation(32)
    rows = [text for text in texts(7, 250, 250) if len(text) > 2 * 8 * 32]
    bounded = BoundedTokenizer(saved(tokenizer, tmp_path), is_pair=False, has_types=True)

    by_beginnings = bounded._of_beginnings(rows)

    expected = by_the_library(tokenizer, rows)
    assert by_beginnings == {at: expected[at] for at in by_beginnings}
    assert len(by_beginnings) > len(rows) / 4


@pytest.mark.parametrize("at", range(1, 9))
def test_a_token_by_name_that_the_cut_goes_through_is_read_whole(at: int, tmp_path: Path) -> None:
    """Its characters would otherwise be words."""
    tokenizer = tokenizer_files.wordpiece()
    tokenizer.enable_truncation(8)
    text = "fox          " * 4 + "fox" + " " * at + "[MASK]" * 20  # the beginning has 64 characters
    bounded = BoundedTokenizer(saved(tokenizer, tmp_path), is_pair=False, has_types=True)

    assert without_faults(bounded.tokens([text])) == by_the_library(tokenizer, [text])


HUGE = [piece * (1 << 20) for piece in ("a ", "a", " ", ".", "中", "\0", "[SEP]")]


class Spy:
    """A tokenizer of the library that keeps the length of the longest text it was given."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.longest = 0

    def encode_batch(self, texts: Sequence[Text]) -> Sequence[object]:
        self._note(texts)
        return self._tokenizer.encode_batch(texts)

    def encode_batch_fast(self, texts: Sequence[Text]) -> Sequence[object]:
        self._note(texts)
        return self._tokenizer.encode_batch_fast(texts)

    def _note(self, texts: Sequence[Text]) -> None:
        lengths = [len(text) if isinstance(text, str) else max(map(len, text)) for text in texts]
        self.longest = max(self.longest, *lengths)


@pytest.mark.parametrize("direction", ["right", "left"])
@pytest.mark.parametrize("is_pair", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_huge_text_is_read_in_part(kind: str, direction: str, *, is_pair: bool, tmp_path: Path) -> None:
    """It gives tokens, and the library gets no more than 64 characters for each of them, of a million of anything."""
    tokenizer = made(kind)
    tokenizer.enable_truncation(300, direction=direction)
    bounded = BoundedTokenizer(saved(tokenizer, tmp_path), is_pair=is_pair, has_types=False)
    spy = bounded._tokenizer = Spy(bounded._tokenizer)  # type: ignore[assignment]  # it has what is used

    found = bounded.tokens([(text, text) for text in HUGE] if is_pair else HUGE)

    assert [one for one in found if isinstance(one, RowFault) or len(one.ids) > 300] == []
    assert spy.longest == 64 * 300


def test_texts_that_are_many_characters_together_are_read_in_portions(tmp_path: Path) -> None:
    """They keep their order."""
    tokenizer = tokenizer_files.wordpiece()
    tokenizer.enable_truncation(2000)
    rows = [f"{at} {'fox ' * 2000}" for at in range(70)]
    bounded = BoundedTokenizer(saved(tokenizer, tmp_path), is_pair=False, has_types=True)

    assert bounded.tokens(rows) == by_the_library(tokenizer, rows)


def test_a_text_that_is_refused_does_not_fail_the_others(tmp_path: Path) -> None:
    """Each gets tokens, or a fault that says what was expected and does not quote it."""
    without_unknown = Tokenizer(models.WordLevel({"fox": 0}, "[UNK]"))
    without_unknown.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    path = saved(without_unknown, tmp_path)
    bounded = BoundedTokenizer(path, is_pair=False, has_types=True, max_tokens=4)

    found = bounded.tokens(["fox", "dog", "\ud800", "", "fox fox", "\ud800" * 99])

    assert found == [
        Tokens([0], [0]),
        RowFault(Code.INVALID_ARGUMENT, "expected a text of characters that the tokenizer knows"),
        RowFault(Code.INVALID_ARGUMENT, "expected a text without lone surrogates"),
        RowFault(Code.INVALID_ARGUMENT, "expected a text that gives a token"),
        Tokens([0, 0], [0, 0]),
        RowFault(Code.INVALID_ARGUMENT, "expected a text without lone surrogates"),
    ]


@pytest.mark.parametrize(
    ("threads", "given", "expected"),
    [
        (1, {}, {"TOKENIZERS_PARALLELISM": "false"}),
        (0, {}, {"TOKENIZERS_PARALLELISM": "true"}),
        (3, {}, {"TOKENIZERS_PARALLELISM": "true", "RAYON_NUM_THREADS": "3"}),
        (1, {"TOKENIZERS_PARALLELISM": "true"}, {"TOKENIZERS_PARALLELISM": "true"}),
    ],
)
def test_the_library_has_the_threads_of_an_inference(
    threads: int, given: dict[str, str], expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator may say otherwise in the environment."""
    monkeypatch.setattr("worker.inference.records.tokenizer.os.environ", given)

    share_cores(threads)

    assert given == expected
