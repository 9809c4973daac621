"""Proposes a section `[records]` for a model and a sample of records. Pure.

It guesses, and says for each entry what was seen; the operator decides. `inputs.py` finds the fields of plain inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec
from worker.tools.records.choices import by_rows, kinds_in
from worker.tools.records.inputs import Entry, FieldsForInputs, is_id, written
from worker.tools.records.sample import Kind, Sample, is_picture

TOKENS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
VALUE = "$value"
_ENCODED = {"text": "texts", "bytes": "bytes", "registry": "framed, and their schemas in a registry"}
_IMAGENET = (
    Entry("image", "mean", [0.485, 0.456, 0.406], "Of ImageNet: confirm that these are the training's."),
    Entry("image", "std", [0.229, 0.224, 0.225], "Likewise."),
)


class Proposal(NamedTuple):
    """A section `[records]`, entry by entry, in order."""

    entries: Sequence[Entry]

    @property
    def section(self) -> dict[str, Any]:
        """The section as plain values."""
        made: dict[str, Any] = {}
        for table, name, value, *_ in self.entries:
            if value is not None:
                (made.setdefault(table, {}) if table else made)[name] = value
        return made

    @property
    def open(self) -> Sequence[str]:
        """The entries for which nothing fits."""
        open_ones = [entry for entry in self.entries if entry.value is None]
        return [one.name if one.table == "inputs" else f"{one.table}.{one.name}" for one in open_ones]


def propose(
    signature: Signature,
    sample: Sample,
    *,
    takes_nan: bool = False,
    tokenizer: str | None = None,
    has_image_steps: bool = False,
    has_answer: bool = False,
) -> Proposal:
    """The proposal for a model of this signature and a sample.

    `tokenizer`: the file of one, None if the model's folder has it. `has_image_steps`: the folder says how a picture is
    prepared; `has_answer`: it says what the answer has.
    """

    def feeds(sample: Sample) -> list[Entry]:
        return _feeds(signature, sample, tokenizer, takes_nan=takes_nan, has_image_steps=has_image_steps)

    entries: list[Entry] = []
    if sample.encoding != "json":
        entries.append(Entry("", "encoding", sample.encoding, f"The values are {_ENCODED[sample.encoding]}."))
    if sample.envelope is not None:
        entries.append(Entry("", "envelope", sample.envelope, "The record is there, in its envelope."))
    with_rows = partial(by_rows, feeds)
    if (kinds := kinds_in(sample, with_rows)) is not None:
        entries.append(kinds.entry)
        sample = kinds.sample
    entries += with_rows(sample)
    entries += _answer(signature, sample, has_fields=not has_answer)
    return Proposal(entries)


def _feeds(
    signature: Signature, sample: Sample, tokenizer: str | None, *, takes_nan: bool, has_image_steps: bool
) -> list[Entry]:
    """The entries that feed the model: texts, pictures, then plain inputs."""
    entries: list[Entry] = []
    rest = list(signature.inputs)
    if TOKENS[0] in [spec.name for spec in rest]:
        rest = [spec for spec in rest if spec.name not in TOKENS]
        entries += _text(sample, tokenizer)
    elif (picture := _picture_input(signature)) is not None and (found := _pictures(sample)) is not None:
        rest.remove(picture)
        entries.append(found)
        if picture.is_float and not has_image_steps:
            entries += _IMAGENET
    return [*entries, *FieldsForInputs(sample.fields, takes_nan=takes_nan).entries(rest)]


# Texts and pictures


def _text(sample: Sample, tokenizer: str | None) -> Iterator[Entry]:
    if sample.encoding == "text":
        yield Entry("text", "field", VALUE, "Each value is a text.")
    else:
        texts = [seen for seen in sample.fields if seen.kind is Kind.TEXT and not seen.path.has_each]
        longest = max(texts, key=lambda seen: seen.characters, default=None)
        if longest is None:
            yield Entry("text", "field", None, "No field has texts.")
        else:
            mean = round(longest.characters / max(1, longest.kinds.total()))
            others = f", the longest of {len(texts)} fields" if len(texts) > 1 else ""
            said = f"{longest}; {mean} characters on average{others}."
            yield Entry("text", "field", written(longest.path), said, [longest])
    if tokenizer is not None:
        yield Entry("text", "tokenizer", tokenizer, "It lies next to the model.")


def _picture_input(signature: Signature) -> TensorSpec | None:
    """The input that takes a picture: of three dimensions, the first or the last of one or three channels."""
    return next(
        (
            spec
            for spec in signature.inputs
            if len(spec.dims) == 3 and not spec.is_text and {1, 3} & {spec.dims[0], spec.dims[-1]}
        ),
        None,
    )


def _pictures(sample: Sample) -> Entry | None:
    if sample.encoding == "bytes" and is_picture(sample.records[0].value or b""):
        return Entry("image", "field", VALUE, "Each value is a picture.")
    seen = next((seen for seen in sample.fields if seen.kind is Kind.PICTURE), None)
    return None if seen is None else Entry("image", "field", written(seen.path), f"{seen}.", [seen])


# The answer


def _answer(signature: Signature, sample: Sample, *, has_fields: bool) -> Iterator[Entry]:
    names: set[str] = {spec.name for spec in signature.outputs}
    has_mask = any(spec.name == "attention_mask" for spec in signature.inputs)
    for spec in signature.outputs if has_fields else ():
        fields = list(_fields_of(spec, has_mask=has_mask))
        if any(entry.name in names - {spec.name} for entry in fields):
            fields = [_as_it_is(spec)]
        names |= {entry.name for entry in fields}
        yield from fields
    ids = [seen for seen in sample.fields if is_id(seen) and not seen.path.has_each and seen.path.name not in names]
    if ids:
        yield Entry("answer", "keep", [written(ids[0].path)], "The record's id, so that its answer can be told.")


def _as_it_is(spec: TensorSpec) -> Entry:
    return Entry("answer", spec.name, spec.name, f"Output {spec}.")


def _fields_of(spec: TensorSpec, *, has_mask: bool) -> Iterator[Entry]:
    """The fields that an output's name and dimensions suggest. `has_mask`: the model takes an attention mask."""
    said, last = f"Output {spec}.", spec.dims[-1] if spec.dims else None
    if not spec.is_float or not spec.dims:
        yield _as_it_is(spec)
    elif len(spec.dims) == 2 and "hidden_state" in spec.name and has_mask:
        yield Entry("answer", "embedding", {"mean": spec.name, "normalize": True}, f"{said} The mean over the tokens.")
    elif "logits" in spec.name and len(spec.dims) == 1 and (last or 0) > 1:
        yield Entry("answer", "label", {"argmax": spec.name}, f"{said} The best class; `names` gives it a name.")
        yield Entry("answer", "score", {"softmax": spec.name, "top": 1}, "Its probability.")
    elif "prob" in spec.name and spec.dims == (2,):
        yield Entry("answer", "score", f"{spec.name}[1]", f"{said} The probability of the second class.")
    else:
        yield _as_it_is(spec)
