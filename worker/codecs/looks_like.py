"""A value that is no request often looks like something known: this says it in words, and what to do about it.

The one place that guesses. It is asked only about values that were refused, and looks at their first bytes: JSON is
parsed where it is small, which takes at most 30 µs. Never says anything about a request that is only wrong.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import orjson

from worker.codecs.wire_contract import JSON, OCTETS

_HEAD = 512  # bytes that are looked at
_SMALL = 1024  # bytes of JSON that is parsed
_MOST_NAMED = 3
_LONGEST_NAME = 40

_UNPACK = "send the value as it is, and let the producer compress (compression.type)"
_UTF8 = "write it as UTF-8 without a byte order mark"
_FIRST_BYTES: Sequence[tuple[bytes, str]] = (
    (b"\x1f\x8b", f"gzip: {_UNPACK}"),
    (b"\x28\xb5\x2f\xfd", f"zstd: {_UNPACK}"),
    (b"\xef\xbb\xbf", f"UTF-8 behind a byte order mark: {_UTF8}"),
    (b"\xff\xfe", f"UTF-16: {_UTF8}"),
    (b"\xfe\xff", f"UTF-16: {_UTF8}"),
    (b"{\x00", f"UTF-16: {_UTF8}"),
    (b"\x00{", f"UTF-16: {_UTF8}"),
    (b"\x93NUMPY", "a file of numpy (.npy): send array.tobytes()"),
    (b"\xac\xed\x00\x05", "a serialized Java object: use ByteArraySerializer or StringSerializer"),
    (b"\x89PNG", "a PNG image: send its pixels as a tensor, unless the model takes files"),
    (b"\xff\xd8\xff", "a JPEG image: send its pixels as a tensor, unless the model takes files"),
    (b"\x80\x04\x95", "a pickle of Python: nothing unpickles it here"),
)

_V2 = "`inputs`, an array of tensors with name, shape, datatype and data"
# Members that one of these has, all of them, and what it is then. The first that fits.
_DIALECTS: Sequence[tuple[Collection[str], str]] = (
    ({"instances"}, f"a request of KServe version 1 or TensorFlow Serving: send version 2, {_V2}"),
    ({"dataframe_split"}, f"a dataframe_split of MLflow: send each column as one of {_V2}"),
    ({"dataframe_records"}, f"dataframe_records of MLflow: send each column as one of {_V2}"),
    ({"specversion", "type"}, "a CloudEvent in structured mode: send what is in its `data` as the value (binary mode)"),
    (
        {"schema", "payload"},
        "the envelope of Kafka Connect: set value.converter.schemas.enable=false, and the payload alone is the value",
    ),
)
# A member `inputs` that is no array of objects; and what protobuf's own JSON has in place of `data`.
_COLUMNS = re.compile(rb'"inputs"\s*:\s*(?:\{|\[\s*[^\s{\]])')
_CONTENTS = re.compile(rb'"(?:contents|rawInputContents|raw_input_contents)"\s*:')
_MEMBER = re.compile(rb'"([A-Za-z_][\w.-]{0,60})"\s*:')
_IS_NAME = re.compile(r"[A-Za-z_][\w.-]*")


def looks_like(value: bytes, content_type: str) -> str | None:
    """What it is, and the cure behind a colon; None where nothing tells. `content_type` is as what it was read.

    Without apostrophes: the log would take what follows for a quotation, and leave it out.
    """
    head = value[:_HEAD]
    found = next((words for first, words in _FIRST_BYTES if head.startswith(first)), None)
    if found is None and head[:1] == b"\x00":
        found = _framed(value, content_type)
    if found is None and head.lstrip()[:1] in {b"{", b'"'}:
        found = _written(value, head.lstrip(), content_type)
    return found


def _framed(value: bytes, content_type: str) -> str | None:
    """Behind a 0 and four bytes. A row may begin so, too: JSON behind it does not."""
    number = int.from_bytes(value[1:5], "big")
    if number == len(value) - 5:
        return "the framing of gRPC, a byte and the length: send the message alone"
    is_sure = value[5:6] == b"{" or content_type != OCTETS
    if len(value) <= 5 or not is_sure:
        return None
    return (
        f"the framing of Confluent serializers, a 0 and the schema id {number}: use a plain serializer of JSON, "
        "protobuf or bytes"
    )


def _written(value: bytes, head: bytes, content_type: str) -> str | None:
    """An object of JSON, or a string with one in it."""
    if head.startswith(b'"'):
        is_object = head[1:].lstrip().startswith(b'{\\"')
        return "a JSON string with JSON in it: it was serialized twice" if is_object else None
    names = _members(value)
    if "inputs" in names:
        if _COLUMNS.search(head):
            return f"a request of MLflow or TensorFlow Serving: send version 2, {_V2}"
        if _CONTENTS.search(head):
            return "the JSON of protobuf: elements of an input are its `data` here"
        return None if content_type == JSON else f"JSON: send the header content-type: {JSON}"
    dialect = next((words for members, words in _DIALECTS if set(members) <= set(names)), None)
    return dialect or _foreign(names)


def _members(value: bytes) -> Sequence[str]:
    """The names of an object's members; for a long one the names in its beginning, at whatever depth."""
    if len(value) <= _SMALL:
        try:
            return list(orjson.loads(value))
        except orjson.JSONDecodeError:
            return ()
    return list(dict.fromkeys(name.decode() for name in _MEMBER.findall(value[:_HEAD])))


def _foreign(names: Sequence[str]) -> str | None:
    """By its names, as far as they are names: a key of a map may be an address. In quotes, which the log leaves out."""
    shown = [repr(name[:_LONGEST_NAME]) for name in names if _IS_NAME.fullmatch(name)][:_MOST_NAMED]
    if not shown:
        return None
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    fields = "field" if len(names) == 1 else "fields"
    return f"a JSON object with the {fields} {', '.join(shown)}{more}"
