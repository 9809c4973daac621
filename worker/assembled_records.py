"""Builds the parts that read and write records, where the topics hold these and no requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from worker.assembled_model import plain_section
from worker.codecs.answer_forms import AnswerForm, form_of
from worker.codecs.records.answers import record_form
from worker.codecs.records.mapping import RecordMapping
from worker.codecs.records.projection import ReaderOf, from_json
from worker.core.records import ReplyForm
from worker.core.tensors.signature import Signature
from worker.settings import ModelSettings, RecordsSettings


class RecordSections(Protocol):
    """The sections that a mapping is made of."""

    @property
    def model(self) -> ModelSettings: ...
    @property
    def records(self) -> RecordsSettings | None: ...


def record_mapping(
    settings: RecordSections, signature: Signature, reader_of: ReaderOf = from_json
) -> RecordMapping | None:
    """The mapping of records to the inputs of this signature; None for requests. Raises `BadConfiguration`."""
    if settings.records is None:
        return None
    takes_nan = settings.model.non_finite_input == "allow"
    return RecordMapping(plain_section(settings.records), signature, reader_of, takes_nan=takes_nan)


def forms_of(mapping: RecordMapping | None) -> Callable[[ReplyForm], AnswerForm]:
    """The form of each reply: of requests what they ask for, and one for all records."""
    if mapping is None:
        return form_of
    form = record_form(mapping.keep, has_rows=mapping.has_rows)
    return lambda _: form
