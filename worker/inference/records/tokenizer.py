"""Turns texts into tokens by the model's `tokenizer.json`, in a bounded time and memory whatever the texts are.

`tokenizers` is Hugging Face's library, in Rust. It lets go of the interpreter. It can cut a text that is too long, but
only after all of it has become tokens, and it keeps the rest in pieces, of two texts in all combinations: a pair of
64 KiB each took 16 s and 11 GB (2026-11). So texts are cut before, to their first characters, and tokens after, here:

    text ── up to 64 characters for each token ──▶ tokens ── at most `max_tokens` ──▶ ids and types

A beginning of 8 characters for each token is enough if it gives more tokens than are kept. A tokenizer reads from left
to right, word by word, and what follows a word does not change the words before it. Only a token that was added by its
name, such as `[MASK]`, may span several words, at most as many as it has characters.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from worker.core.failures import BadConfiguration, Code, RowFault

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

Text = str | tuple[str, str]  # a text, or a pair of them
Encode = Callable[[Sequence[Text]], Sequence["Encoding"]]

# English has 4.5 characters for each token of BERT's vocabulary, German 4. A beginning of these for each token is tried
# where it is less than half of the text, because one that is not enough was read in vain.
_USUAL = 8
# A text with more than these for each token is no language, but a run of blanks or of one letter.
_MOST = 64
_LEAST_READ = 16_384  # as `_MOST` for 256 tokens: runs are longer among few tokens
# Characters of the texts that the library holds at once: one may take 500 bytes there.
_AT_ONCE = 1 << 18


class Tokens(NamedTuple):
    """The tokens of one row: their ids, and to which of a pair's texts each belongs, if that was asked for."""

    ids: Sequence[int]
    types: Sequence[int]


class BoundedTokenizer:
    """A tokenizer that gives 1 to `max_tokens` tokens for each text or pair. Several threads may use it at once."""

    def __init__(
        self,
        path: Path,
        *,
        is_pair: bool,
        has_types: bool,
        max_tokens: int | None = None,
        most: int | None = None,
        is_lowered: bool = False,
    ) -> None:
        """Without `max_tokens` the file's truncation counts. The model takes `most`. Raises `BadConfiguration`.

        `is_lowered`: texts are put in small letters first.
        """
        tokenizer = self._tokenizer = _opened(path)
        if is_lowered:
            _lower(tokenizer)
        truncation, padding = tokenizer.truncation or {}, tokenizer.padding
        tokenizer.no_truncation()
        tokenizer.no_padding()
        limit = max_tokens or truncation.get("max_length") or most
        if limit is None:
            raise BadConfiguration(f"[records.text] max_tokens: write how many the model takes, as {path} does not say")
        limit = min(limit, most or limit)
        special = tokenizer.num_special_tokens_to_add(is_pair)
        if limit <= special:
            raise BadConfiguration(
                f"[records.text] max_tokens: {limit} are too few, as the tokenizer adds {special} itself"
            )
        self.max_tokens: int = limit
        self.pad_token: int | None = None if padding is None else padding["pad_id"]
        self._room = limit - special
        self._has_types = has_types
        self._strategy = truncation.get("strategy", "longest_first") if is_pair else "only_first"
        self._cuts_left = truncation.get("direction") == "left"
        added = tokenizer.get_added_tokens_decoder().values()
        self._longest_added = max((len(token.content) for token in added), default=1)

    def tokens(self, texts: Sequence[Text]) -> Sequence[Tokens | RowFault]:
        """The tokens of each text, or why it has none."""
        enough = {} if self._cuts_left else self._of_beginnings(texts)
        rest = [self._bounded(text) for at, text in enumerate(texts) if at not in enough]
        tokens = map(self._cut, self._encoded(rest, self._tokenizer.encode_batch_fast))
        return list(tokens) if not enough else [enough.get(at) or next(tokens) for at in range(len(texts))]

    def _of_beginnings(self, texts: Sequence[Text]) -> dict[int, Tokens | RowFault]:
        """The tokens of the long texts that have enough of them in their beginnings, by index."""
        usual = _USUAL * self.max_tokens
        long: dict[int, Text] = {
            at: text[:usual] for at, text in enumerate(texts) if isinstance(text, str) and len(text) > 2 * usual
        }
        encoded = self._encoded(list(long.values()), self._tokenizer.encode_batch)
        return {at: self._cut(found) for at, found in zip(long, encoded, strict=True) if self._is_enough(found)}

    def _is_enough(self, found: Encoding | RowFault) -> bool:
        """True if the tokens that are kept would be the same ones with more characters behind them."""
        if isinstance(found, RowFault):
            return False
        words = [word for word in found.word_ids if word is not None]
        return len(words) > self._room and words[-1] - words[self._room - 1] > self._longest_added

    def _bounded(self, text: Text) -> Text:
        if isinstance(text, tuple):
            return self._first(text[0]), self._first(text[1])
        return self._first(text)

    def _first(self, text: str) -> str:
        most = max(_MOST * self.max_tokens, _LEAST_READ)
        return text if len(text) <= most else text[-most:] if self._cuts_left else text[:most]

    def _encoded(self, texts: Sequence[Text], encode: Encode) -> Iterator[Encoding | RowFault]:
        """The library's tokens of each text, one by one where it refuses some: one would else fail all."""
        for some in _portions(texts):
            try:
                encodings = encode(some)
            except Exception:  # noqa: BLE001  # the library raises no other type
                yield from [_alone(text, encode) for text in some]
            else:
                yield from encodings

    def _cut(self, found: Encoding | RowFault) -> Tokens | RowFault:
        """The tokens of a text, at most `max_tokens` of them. Special tokens stay."""
        if isinstance(found, RowFault):
            return found
        ids, types = found.ids, found.type_ids if self._has_types else []
        if len(ids) <= self.max_tokens:
            return Tokens(ids, types) if ids else _refused("a text that gives a token")
        owners = found.sequence_ids
        counts = owners.count(0), owners.count(1)
        if (kept := self._kept(*counts)) is None:
            return _refused("a shorter text: the tokenizer cuts only the other one of the pair")
        for owner, (count, keep) in enumerate(zip(counts, kept, strict=True)):
            if keep < count:
                start = owners.index(owner)
                cut = slice(start, start + count - keep) if self._cuts_left else slice(start + keep, start + count)
                del owners[cut], ids[cut], types[cut]
        return Tokens(ids, types)

    def _kept(self, first: int, second: int) -> tuple[int, int] | None:
        """How many tokens of both texts are kept, of so many, by the library's rules; None: it refuses the pair."""
        room = self._room
        if self._strategy == "only_first":
            return (room - second, second) if second < room else None
        if self._strategy == "only_second":
            return (first, room - first) if first < room else None
        if 2 * min(first, second) <= room:
            return (first, room - first) if first <= second else (room - second, second)
        half, more = room // 2, room // 2 + room % 2
        return (half, more) if first <= second else (more, half)


def share_cores(threads: int) -> None:
    """Let the library use so many threads; 0: one on each core. It reads the environment, which an operator may set.

    By default it takes all cores, from the loop and the other lanes. Two threads gave 1.8 times the texts a second, and
    took 7 % more CPU for each (2026-11).
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false" if threads == 1 else "true")
    if threads > 1:
        os.environ.setdefault("RAYON_NUM_THREADS", str(threads))


def _opened(path: Path) -> Tokenizer:
    try:
        from tokenizers import Tokenizer  # noqa: PLC0415 - an extra, and few need it
    except ImportError as error:
        raise BadConfiguration(f"[records.text] needs `pip install 'inference-worker[text]'`: {error}") from error
    try:
        return Tokenizer.from_str(path.read_text("utf-8"))
    except Exception as error:  # the library raises no other type
        raise BadConfiguration(f"[records.text] tokenizer: {path} cannot be read: {error}") from error


def _lower(tokenizer: Tokenizer) -> None:
    from tokenizers.normalizers import Lowercase, Sequence  # noqa: PLC0415 - as above

    own = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
    tokenizer.normalizer = Sequence([Lowercase(), *own])


def _portions(texts: Sequence[Text]) -> Iterator[Sequence[Text]]:
    """The texts in their order, some at a time."""
    some: list[Text] = []
    characters = 0
    for text in texts:
        some.append(text)
        characters += len(text) if isinstance(text, str) else len(text[0]) + len(text[1])
        if characters > _AT_ONCE:
            yield some
            some, characters = [], 0
    if some:
        yield some


def _alone(text: Text, encode: Encode) -> Encoding | RowFault:
    try:
        return encode([text])[0]
    except TypeError:
        return _refused("a text without lone surrogates")
    except Exception:  # noqa: BLE001  # the library raises no other type
        return _refused("a text of characters that the tokenizer knows")


def _refused(expected: str) -> RowFault:
    return RowFault(Code.INVALID_ARGUMENT, f"expected {expected}")
