"""Names the known thing that a refused value looks like, and what to do about it.

Only this module guesses. It is asked only about values that were refused, and looks at their first bytes. Small JSON is
parsed, which takes at most 30 µs. It says nothing about a request that is only wrong.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import orjson

from worker.codecs.wire_contract import JSON, OCTETS, RECORD
from worker.core.failures import listed

_HEAD = 512  # the first bytes, which are looked at
_SMALL = 1024  # the most bytes of JSON that is parsed
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
    (b'"{\\"', "a JSON string with JSON in it: it was serialized twice"),
)
_MEMBER = re.compile(rb'"([A-Za-z_][\w.-]{0,60})"\s*:')
_IS_NAME = re.compile(r"[A-Za-z_][\w.-]*")


def looks_like(value: bytes, content_type: str) -> str | None:
    """The thing, then a colon and the cure; None if it looks like nothing known. The value was read as `content_type`.

    The text has no apostrophes: the log would take the text after one for a quotation, and leave it out.
    """
    found = next((words for first, words in _FIRST_BYTES if value.startswith(first)), None)
    # A row may begin with a 0, too, but not with JSON after it.
    if found is None and value[:1] == b"\x00" and len(value) > 5 and (value[5:6] == b"{" or content_type != OCTETS):
        number = int.from_bytes(value[1:5], "big")
        cure = "set WORKER_RECORDS__ENCODING to registry" if content_type == RECORD else "use a plain serializer"
        return f"the framing of Confluent serializers, a 0 and the schema id {number}: {cure}"
    if found is None and content_type != RECORD and value[:_HEAD].lstrip()[:1] == b"{":
        return _object(_members(value), content_type)
    return found


def _object(names: Sequence[str], content_type: str) -> str | None:
    """Describes an object by its names, in quotes, which the log leaves out. Keys like addresses are no names."""
    if "inputs" in names:
        return None if content_type == JSON else f"JSON: send the header content-type: {JSON}"
    if "instances" in names:
        return "a request of KServe version 1 or TensorFlow Serving: send version 2, `inputs` with name, shape and data"
    shown = [repr(name[:_LONGEST_NAME]) for name in names if _IS_NAME.fullmatch(name)]
    return f"a JSON object with the fields {listed(shown)}" if shown else None


def _members(value: bytes) -> Sequence[str]:
    """The names of an object's members; if it is long, the names in its beginning, at any depth."""
    if len(value) > _SMALL:
        return list(dict.fromkeys(name.decode() for name in _MEMBER.findall(value[:_HEAD])))
    try:
        return list(orjson.loads(value))
    except orjson.JSONDecodeError:
        return ()
