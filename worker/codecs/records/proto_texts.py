"""Protobuf schemas whose text is a `.proto` file, as people register them: what a compiler needs of them, and gives.

Registries keep what was registered. Some give a descriptor of it when they are asked for one, which is base64.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import NamedTuple

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message import DecodeError

from worker.codecs.records.protobuf_schema import MAIN, file_of
from worker.core.schemas import NamedReference, RegisteredSchema


class Sources(NamedTuple):
    """The `.proto` files of a schema by name, and a `FileDescriptorSet` of its imports that are no text."""

    texts: Mapping[str, str]
    described: bytes


def sources(schema: RegisteredSchema) -> Sources | None:
    """The files to compile; None if all are descriptors. Raises `ValueError` for an import that is neither."""
    files = [*schema.references, NamedReference(MAIN, schema.text)]
    texts = {name: text for name, text in files if _is_text(text)}
    if schema.type != "PROTOBUF" or not texts:
        return None
    try:
        described = [file_of(name, text) for name, text in schema.references if name not in texts]
    except (DecodeError, ValueError) as error:
        raise ValueError("refers to a schema that is none of Protobuf") from error
    return Sources(texts, FileDescriptorSet(file=described).SerializeToString())


def compiled(schema: RegisteredSchema, descriptors: bytes) -> RegisteredSchema:
    """The schema with the descriptors that a compiler made of its files, each after those that it imports."""
    texts = {
        file.name: base64.b64encode(file.SerializeToString()).decode()
        for file in FileDescriptorSet.FromString(descriptors).file
    }
    main = texts.pop(MAIN, schema.text)
    references = tuple([NamedReference(*file) for file in texts.items()])
    return schema._replace(text=main, references=references, was_text=_is_text(schema.text))


def _is_text(text: str) -> bool:
    """Base64 has neither of these, and a file with a message has both."""
    return "{" in text or ";" in text
