"""Protobuf schemas whose text is a `.proto` file, as people register them: what a compiler needs of them, and gives.

Registries keep what was registered. Some give a descriptor of it when they are asked for one, which is base64.

Apicurio's serializer for Java registers texts that no compiler takes: it writes a map as the list of entries that it
is on the wire, with an option that is the compiler's own, and it registers the files of Protobuf, too.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorSet, MessageOptions
from google.protobuf.message import DecodeError

from worker.codecs.records.protobuf_schema import MAIN, file_of
from worker.core.schemas import NamedReference, RegisteredSchema

# The files of Protobuf itself, which every compiler has.
_STANDARD = "google/protobuf/"
_ENTRY = re.compile(r"\boption\s+map_entry\s*=\s*true\s*;")
# An option that no schema has: it says in the compiler's output which messages are entries.
_MARK = "option no_standard_descriptor_accessor = true;"


class Sources(NamedTuple):
    """The `.proto` files of a schema by name, and a `FileDescriptorSet` of its imports that are no text."""

    texts: Mapping[str, str]
    described: bytes


def sources(schema: RegisteredSchema) -> Sources | None:
    """The files to compile; None if all are descriptors. Raises `ValueError` for an import that is neither."""
    references = [each for each in schema.references if not each.name.startswith(_STANDARD)]
    files = [*references, NamedReference(MAIN, schema.text)]
    texts = {name: _ENTRY.sub(_MARK, text) for name, text in files if _is_text(text)}
    if schema.type != "PROTOBUF" or not texts:
        return None
    try:
        described = [file_of(name, text) for name, text in references if name not in texts]
    except (DecodeError, ValueError) as error:
        raise ValueError("refers to a schema that is none of Protobuf") from error
    return Sources(texts, FileDescriptorSet(file=described).SerializeToString())


def compiled(schema: RegisteredSchema, descriptors: bytes) -> RegisteredSchema:
    """The schema with the descriptors that a compiler made of its files, each after those that it imports."""
    texts: dict[str, str] = {}
    for file in FileDescriptorSet.FromString(descriptors).file:
        _restore_maps(file.message_type)
        texts[file.name] = base64.b64encode(file.SerializeToString()).decode()
    main = texts.pop(MAIN, schema.text)
    references = tuple([NamedReference(*file) for file in texts.items()])
    return schema._replace(text=main, references=references, was_text=_is_text(schema.text))


def _restore_maps(messages: Iterable[DescriptorProto]) -> None:
    for message in messages:
        if message.options.no_standard_descriptor_accessor:
            message.options.CopyFrom(MessageOptions(map_entry=True))
        _restore_maps(message.nested_type)


def _is_text(text: str) -> bool:
    """Base64 has neither of these, and a file with a message has both."""
    return "{" in text or ";" in text
