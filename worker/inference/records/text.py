"""The preparation of texts: a field, or a pair of fields, becomes the inputs of an encoder.

text, text_pair ──▶ input_ids, attention_mask, token_type_ids, position_ids (of these, the model's own)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from worker.core.failures import BadConfiguration, RowFault, listed
from worker.core.records import Array
from worker.core.tensors.specs import TensorSpec
from worker.inference.hugging_face import Folder
from worker.inference.records.parts import Column, Prepared
from worker.inference.records.tokenizer import BoundedTokenizer, Tokens, share_cores

TEXT, PAIR = "text", "text_pair"
TOKENS = _IDS, _MASK, _TYPES, _PLACES = "input_ids", "attention_mask", "token_type_ids", "position_ids"


class Texts:
    """Makes an encoder's inputs of texts. The rows are as long as their texts, or all as long as the model demands."""

    def __init__(
        self,
        tokenizer: BoundedTokenizer,
        inputs: Sequence[TensorSpec],
        fields: Sequence[str],
        pad: int,
        prefix: str = "",
    ) -> None:
        """`inputs` are the ones to make. `fields` are one or two names for messages. `prefix` begins each text.

        `pad` is the id of the token that lengthens rows. Without a mask the model would look at it, so only texts of
        equal length share a run then.
        """
        self.makes: Collection[str] = [spec.name for spec in inputs]
        self.takes = [TensorSpec(name, "BYTES", ()) for name in (TEXT, PAIR)[: len(fields)]]
        self._tokenizer = tokenizer
        self._inputs = inputs
        self._fields = " and ".join(fields)
        self._length = fixed_length(inputs)
        self._has_mask = _MASK in self.makes
        self._pads = {_IDS: pad}
        self._prefix = prefix

    def prepare(self, feeds: Mapping[str, Array]) -> Prepared:
        """The inputs of these texts. A text without tokens is a fault of its row."""
        texts, *pairs = [feeds[spec.name].tolist() for spec in self.takes]
        if self._prefix:
            texts = [self._prefix + text for text in texts]
        found = self._tokenizer.tokens(list(zip(texts, *pairs, strict=True)) if pairs else texts)
        faults = {row: one for row, one in enumerate(found) if isinstance(one, RowFault)}
        tokens = [one for one in found if not isinstance(one, RowFault)]
        return Prepared(
            {spec.name: self._column(spec, tokens) for spec in self._inputs},
            {row: fault._replace(message=f"{self._fields}: {fault.message}") for row, fault in faults.items()},
        )

    def _column(self, spec: TensorSpec, tokens: Sequence[Tokens]) -> Column:
        if spec.name in (_MASK, _PLACES):
            most = self._tokenizer.max_tokens
            longest = np.ones(most, spec.dtype) if spec.name == _MASK else np.arange(most, dtype=spec.dtype)
            rows = [longest[: len(ids)] for ids, _ in tokens]
        else:
            rows = [np.array(types if spec.name == _TYPES else ids, spec.dtype) for ids, types in tokens]
        pad = self._pads.get(spec.name, 0)
        if self._length is None:
            return Column(rows, pad if self._has_mask else None)
        full = np.full((len(rows), self._length), pad, spec.dtype)
        for row, own in zip(full, rows, strict=True):
            row[: len(own)] = own
        return Column(full)


def token_axis(inputs: Sequence[TensorSpec]) -> str | None:
    """The name that the model's file gives to the axis of tokens, if any."""
    return next((spec.symbol(0) for spec in inputs if spec.name == _IDS and spec.dims), None)


def fixed_length(inputs: Sequence[TensorSpec]) -> int | None:
    """The length that all rows of these inputs have; None: any."""
    return next((spec.dims[0] for spec in inputs if spec.dims[0] is not None), None)


def texts_of(
    section: Mapping[str, Any],
    inputs: Sequence[TensorSpec],
    folder: Folder | None = None,
    threads: int = 1,
    ends: Sequence[int] | None = None,
) -> Texts:
    """The preparation that `[records.text]` asks for, with a model of these inputs. `threads` 0: one on each core.

    The setting's `max_tokens` comes first, then the folder's, then the tokenizer's own, then the most that the model
    takes. `ends`: the lengths that rows may have (`BATCHING__BUCKETS`); None: any. Raises `BadConfiguration`.
    """
    made = [spec for spec in inputs if spec.name in TOKENS]
    for spec in made:
        fit = ("INT32", "INT64", "BOOL") if spec.name == _MASK else ("INT32", "INT64")
        if len(spec.dims) != 1 or spec.datatype not in fit:
            raise BadConfiguration(f"[records.text] {spec}: expected INT64[batch, tokens], which tokens can be")
    if _IDS not in [spec.name for spec in made]:
        takes = listed(inputs)
        raise BadConfiguration(
            f"[records.text] the model takes {takes}, and no {_IDS}: export an encoder (docs/models.md)"
        )
    known = folder or Folder(Path())
    tokenizer, wanted = section["tokenizer"] or known.tokenizer, section["max_tokens"]
    if tokenizer is None:
        raise BadConfiguration(_without_tokenizer(folder))
    bounds = (known.positions, fixed_length(made), None if ends is None else ends[-1])
    most = min((n for n in bounds if n is not None), default=None)
    if wanted is not None and most is not None and wanted > most:
        taken = "the longest of BATCHING__BUCKETS" if most == bounds[-1] else "the model takes"
        raise BadConfiguration(f"[records.text] max_tokens: {wanted} are more than {taken}, which is {most}")
    prefix = _prefix(section, known)
    share_cores(threads)
    bounded = BoundedTokenizer(
        Path(tokenizer),
        is_pair=section["pair"] is not None,
        has_types=any(spec.name == _TYPES for spec in made),
        max_tokens=wanted or known.max_tokens,
        most=most,
        is_lowered=known.is_lowered,
    )
    pad = next((n for n in (bounded.pad_token, known.pad_token) if n is not None), 0)
    fields = [_written(section[name]) for name in ("field", "pair") if section[name] is not None]
    return Texts(bounded, made, fields, pad, prefix)


def _prefix(section: Mapping[str, Any], folder: Folder) -> str:
    """The beginning of each text. Raises `BadConfiguration`."""
    given: str | None = section["prefix"]
    if section["pair"] is not None:
        if given:
            raise BadConfiguration("[records.text] prefix: it begins a single text; leave it or `pair` out")
        return ""
    prefix = folder.prompt if given is None else given
    if prefix and not folder.pools_prompt:
        raise BadConfiguration(
            f"[records.text] prefix: {folder.path / '1_Pooling'} leaves the tokens of {prefix!r} out of the embedding, "
            'which is not done here; prefix = "" leaves out the whole of it'
        )
    return prefix


def _written(path: str | Sequence[str]) -> str:
    return path if isinstance(path, str) else ".".join(path)


def _without_tokenizer(folder: Folder | None) -> str:
    if folder is None:
        return "[records.text] tokenizer: name the tokenizer.json of the model"
    return (
        f"[records.text] {folder.path} has no tokenizer.json: name one as `tokenizer`, or have it written by "
        f"`AutoTokenizer.from_pretrained({str(folder.path)!r}).save_pretrained({str(folder.path)!r})`"
    )
