"""Builds the parts that read and write records, where the topics hold these and no requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from worker.assembled_model import plain_section
from worker.assembled_states import GIVE_UP_TIMEOUT
from worker.codecs.answer_forms import AnswerForm, form_of
from worker.codecs.records.answer_fields import AnswerField
from worker.codecs.records.answer_schemas import answer_schema, whole_record
from worker.codecs.records.answers import record_form, schema_form
from worker.codecs.records.declared_mapping import ALL, KEEP
from worker.codecs.records.framed_values import FramedValues
from worker.codecs.records.mapping import RecordMapping
from worker.codecs.records.projection import ReaderOf, from_json, from_objects
from worker.codecs.records.served import ANSWER
from worker.core.failures import BadConfiguration
from worker.core.records import ReplyForm
from worker.core.schemas import RegisteredSchema
from worker.core.tensors.signature import Signature
from worker.ports import Schemas
from worker.settings import ModelSettings, RecordsSettings, Settings

if TYPE_CHECKING:
    from worker.registry.registry import Registry

# How the fields of a value are read, by `RECORDS__ENCODING`; None: it has none.
_READERS: Mapping[str, ReaderOf | None] = {"json": from_json, "registry": from_objects, "text": None, "bytes": None}


class RecordSections(Protocol):
    """The sections that a mapping is made of."""

    @property
    def model(self) -> ModelSettings: ...
    @property
    def records(self) -> RecordsSettings | None: ...


class RecordParts(NamedTuple):
    """The parts that read and write the values of the topics. For requests only `form_of` is of use.

    `warning`: they were made without the registry, and why.
    """

    form_of: Callable[[ReplyForm], AnswerForm] = form_of
    mapping: RecordMapping | None = None
    framed: FramedValues | None = None
    schemas: Schemas | None = None
    warning: str | None = None


def record_parts(
    settings: Settings, signature: Signature, closing: ExitStack, *, is_trial: bool = False
) -> RecordParts:
    """The parts for records of this signature. Raises `BadConfiguration`.

    A registry is asked for the schemas of the topics, and given that of the answers, before the first record; in a
    trial it is asked whether it would take that.
    """
    skips_null = settings.kafka.null_value == "skip"
    if settings.records is not None and settings.records.encoding == "registry":
        return _with_schemas(settings, settings.records, signature, closing, is_trial=is_trial, skips_null=skips_null)
    mapping = record_mapping(settings, signature, skips_null=skips_null)
    return RecordParts() if mapping is None else RecordParts(forms_of(mapping), mapping)


def record_mapping(
    settings: RecordSections, signature: Signature, reader_of: ReaderOf | None = None, *, skips_null: bool = False
) -> RecordMapping | None:
    """The mapping of records to the inputs of this signature; None for requests. Raises `BadConfiguration`.

    `reader_of` reads records that are no values of a topic, but rows of a file.
    """
    if settings.records is None:
        return None
    return _mapping(settings.records, settings.model, signature, reader_of, skips_null=skips_null)


def _mapping(
    records: RecordsSettings,
    model: ModelSettings,
    signature: Signature,
    reader_of: ReaderOf | None = None,
    *,
    skips_null: bool,
) -> RecordMapping:
    return RecordMapping(
        plain_section(records),
        signature,
        reader_of or _READERS[records.encoding],
        takes_nan=model.non_finite_input == "allow",
        skips_null=skips_null,
    )


def forms_of(mapping: RecordMapping | None) -> Callable[[ReplyForm], AnswerForm]:
    """The form of each reply: of requests what they ask for, and one for all records."""
    if mapping is None:
        return form_of
    form = record_form(mapping.keep, has_rows=mapping.has_rows)
    return lambda _: form


def _with_schemas(  # what `record_parts` has
    settings: Settings,
    records: RecordsSettings,
    signature: Signature,
    closing: ExitStack,
    *,
    is_trial: bool,
    skips_null: bool,
) -> RecordParts:
    """The parts for records whose schema is in a registry. The answers are in the same encoding, unless it is set."""
    from worker.registry.registry import Registry  # noqa: PLC0415  # its client is an extra

    assert settings.registry is not None
    registry = Registry(settings.registry)
    closing.callback(registry.close, GIVE_UP_TIMEOUT)
    own = settings.registry.subject
    subjects = [f"{topic}-value" for topic in settings.kafka.request_topics] if own is None else [own]
    newest = [registry.newest(subject) for subject in subjects]
    if records.answer_encoding == "json":
        mapping = _mapping(records, settings.model, signature, skips_null=skips_null)
        return _parts(registry, mapping, forms_of(mapping))
    record = next((schema for schema in newest if schema is not None), None)
    if record is None:
        raise BadConfiguration(
            f"WORKER_REGISTRY__SUBJECT: the registry has no schema of {', '.join(subjects)}, by which the answers' "
            "schema is made; name the subject that the records' producer registers, or register their schema"
        )
    if records.answer.get(KEEP) == ALL and records.envelope is not None:
        raise BadConfiguration(
            f"[records.answer] keep: a record in the envelope {records.envelope} has no schema of its own, by which it "
            "could all be kept; name the fields to keep"
        )
    if records.answer.get(KEEP) == ALL:
        records = records.model_copy(update={"answer": {**records.answer, KEEP: list(whole_record(record))}})
    mapping = _mapping(records, settings.model, signature, skips_null=skips_null)
    subject = f"{settings.kafka.response_topic}-value"
    form = _form_with_schema(
        record, signature, mapping, records.functions, partial(registry.of_answers, subject, is_trial=is_trial)
    )
    return _parts(registry, mapping, lambda _: form)


def _parts(registry: Registry, mapping: RecordMapping, form_of: Callable[[ReplyForm], AnswerForm]) -> RecordParts:
    framed = FramedValues(registry.schemas, mapping.wanted)
    return RecordParts(form_of, mapping, framed, registry.schemas, registry.away)


def _form_with_schema(
    record: RegisteredSchema,
    signature: Signature,
    mapping: RecordMapping,
    functions: Path | None,
    registered: Callable[[RegisteredSchema], RegisteredSchema],
) -> AnswerForm:
    if any(spec.name == ANSWER for spec in signature.outputs) and functions is not None:
        raise BadConfiguration(
            f"[records] functions: {functions}: `answer` gives fields that no schema can name beforehand, and answers "
            'of RECORDS__ENCODING=registry have one; set answer_encoding = "json", or make them in [records.answer]'
        )
    rows = (None,) if mapping.has_rows else ()
    fields = [AnswerField(spec.name, spec.datatype, (*rows, *spec.dims)) for spec in signature.outputs]
    schema = answer_schema(record, fields, mapping.kept_paths)
    found = registered(RegisteredSchema(None, None, schema.type, schema.text))
    assert found.id is not None
    return schema_form(schema.writer(found.id), has_rows=mapping.has_rows)
