"""The RECORDS section: what the values of the request topics are, if they are no requests, and what becomes of them.

It exists only where it is set. The entries of its tables name fields and outputs, so the model judges them at start.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from worker.settings.value_types import PathNamed, Section, Text, as_list, as_object

FieldPath = Annotated[str | tuple[Text, ...], Field(min_length=1)]
# Judged where the model is known: a field, a list of fields, or a table.
Table = Annotated[dict[Text, Any], BeforeValidator(as_object('{"score": "probabilities[1]"}'))]


class TextSettings(Section):
    """The field that is tokenised for the model."""

    field: FieldPath
    pair: FieldPath | None = None
    prefix: str | None = None  # before each text; None: as the model's folder says
    tokenizer: Path | None = None
    max_tokens: int | None = Field(None, ge=1)


Sides = Annotated[
    tuple[Annotated[int, Field(ge=1, le=16_384)], ...], BeforeValidator(as_list), Field(min_length=1, max_length=2)
]
Numbers = Annotated[tuple[float, ...], BeforeValidator(as_list), Field(min_length=1)]


class ImageSettings(Section):
    """The field that holds a picture, and the steps to the model's input: docs/models.md#pictures."""

    field: FieldPath
    input: Text | None = None
    resize: Sides | None = None  # the shorter side, or height and width
    crop: Sides | None = None  # each side, or height and width
    resample: Literal["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"] | None = None
    scale: float | None = None
    mean: Numbers | None = None
    std: Numbers | None = None
    layout: Literal["NCHW", "NHWC"] | None = None
    channels: Literal["rgb", "bgr", "gray"] | None = None
    max_pixels: int | None = Field(None, ge=1, le=178_956_970)  # Pillow's own limit


def _table_of(section: type[Section], example: str) -> Any:
    return Annotated[section | None, BeforeValidator(as_object(example))]


class RecordsSettings(Section):
    """Which fields of a record feed the model, and which fields the answer has."""

    encoding: Literal["json", "text", "bytes", "registry"] = Field(
        "json", description="A value is a JSON object, a text, bytes, or of a schema in a registry (`[registry]`)."
    )
    answer_encoding: Literal["json"] | None = Field(
        None, description="`json`: answers to records with a schema are JSON objects, without one."
    )
    envelope: Text | None = Field(
        None, description="The field that holds the record itself: `payload.after` of Debezium, `payload` of Connect."
    )
    rows: Text | None = Field(
        None, description="The field whose elements, objects, are the rows; else a record is one."
    )
    only: Table = Field(
        {}, description='Records to answer, by fields: `{"type": ["payment"]}`. Others are passed over, and counted.'
    )
    key: Text | None = Field(None, description="The field that is the answer's key; else it has the record's key.")
    inputs: Table = Field({}, description='Fields for the inputs: `{"features": ["amount", "age"]}`; else by name.')
    text: _table_of(TextSettings, '{"field": "body"}') = Field(  # type: ignore[valid-type]  # made from the class
        None,
        description='The field to tokenise: `{"field": "body", "tokenizer": "tokenizer.json", "max_tokens": 256}`.',
    )
    image: _table_of(ImageSettings, '{"field": "photo"}') = Field(  # type: ignore[valid-type]  # as above
        None, description='The field with a picture: `{"field": "$value"}`.'
    )
    answer: Annotated[Table, PathNamed("names")] = Field(
        {}, description='Fields of the answer: `{"score": "probabilities[1]", "keep": ["id"]}`; else all outputs.'
    )
    functions: Path | None = Field(
        None, description="A file in Python with `inputs` or `answer`, for what the tables cannot say."
    )
