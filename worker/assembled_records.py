"""Builds the parts that read and write records, where the topics hold these and no requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from worker.assembled_model import plain_section
from worker.codecs.answer_forms import AnswerForm, form_of
from worker.codecs.records.answers import record_form
from worker.codecs.records.mapping import RecordMapping
from worker.codecs.records.projection import ReaderOf, from_json, from_objects
from worker.core.records import ReplyForm
from worker.core.tensors.signature import Signature
from worker.settings import ModelSettings, RecordsSettings


class RecordSections(Protocol):
    """The sections that a mapping is made of."""

    @property
    def model(self) -> ModelSettings: ...
    @property
    def records(self) -> RecordsSettings | None: ...


# How the fields of a value are read, by `RECORDS__ENCODING`; None: it has none.
_READERS: Mapping[str, ReaderOf | None] = {"json": from_json, "registry": from_objects, "text": None, "bytes": None}


def record_mapping(
    settings: RecordSections, signature: Signature, reader_of: ReaderOf | None = None, *, skips_null: bool = False
) -> RecordMapping | None:
    """The mapping of records to the inputs of this signature; None for requests. Raises `BadConfiguration`.

    `reader_of` reads records that are no values of a topic, but rows of a file.
    """
    if settings.records is None:
        return None
    return RecordMapping(
        plain_section(settings.records),
        signature,
        reader_of or _READERS[settings.records.encoding],
        takes_nan=settings.model.non_finite_input == "allow",
        skips_null=skips_null,
    )


def forms_of(mapping: RecordMapping | None) -> Callable[[ReplyForm], AnswerForm]:
    """The form of each reply: of requests what they ask for, and one for all records."""
    if mapping is None:
        return form_of
    form = record_form(mapping.keep, has_rows=mapping.has_rows)
    return lambda _: form
