"""Hostile records, for a mapping with a field of every kind: each is answered or passed over, and none does harm.

A good record is `GOOD`; `hostile()` spoils one field of it after the other, then the whole value. `right_fields` is
what the model, which gives back its inputs, must answer where a spoilt record is a right one nevertheless.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import zlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
from PIL import Image

from tests.models import model
from tests.photos import photo

CANARY = "kanarienvogel"  # in values: no message may repeat it
LARGE = 900_000  # bytes: about what a topic takes
DEEP = 10_000  # levels

GOOD: Mapping[str, Any] = {
    "id": 7,
    "single": 0.5,
    "double": 2.5,
    "long": 3,
    "tiny": -4,
    "flag": True,
    "as_number": False,
    "channel": "app",
    "text": "here",
    "at": "2026-01-31T12:00:00Z",
    "price": "1.10",
    "deep": {"er": {"still": 6.5}},
    "items": [{"cost": 1.5}, {"cost": 2.5}],
}
CHANNELS = ["web", "app"]
RECORDS: Mapping[str, Any] = {
    "inputs": {
        "as_number": {"field": "as_number", "as": "boolean"},
        "channel": {"field": "channel", "names": CHANNELS},
        "at": {"field": "at", "as": "ms"},
        "price": {"field": "price", "as": "decimal"},
        "deep": "deep.er.still",
        "items": "items[*].cost",
    },
    "answer": {"keep": ["id"], **{f"{name}_out": f"{name}_out" for name in GOOD if name != "id"}},
}
_TYPES = {
    "single": "float[batch, 1]",
    "double": "double[batch, 1]",
    "long": "int64[batch, 1]",
    "tiny": "int8[batch, 1]",
    "flag": "bool[batch, 1]",
    "as_number": "float[batch, 1]",
    "channel": "int64[batch, 1]",
    "text": "string[batch, 1]",
    "at": "int64[batch, 1]",
    "price": "double[batch, 1]",
    "deep": "float[batch, 1]",
    "items": "float[batch, length]",
}


def echo() -> bytes:
    """Makes a model that gives back each of its inputs, as `<name>_out`."""
    inputs = ", ".join(f"{kind} {name}" for name, kind in _TYPES.items())
    outputs = ", ".join(f"{kind} {name}_out" for name, kind in _TYPES.items())
    return model(f"{inputs} => {outputs}", " ".join(f"{name}_out = Identity({name})" for name in _TYPES))


# Values in JSON for any field.
VALUES = [
    *("null", '""', f'"{CANARY}"', "true", "false", "[]", "{}", "[1]", f'{{"{CANARY}": 1}}'),
    *("0", "-1", "0.5", "1e2", "300", "1e308", "1e309", "-1e400", "1e-400", "-0", "1E+2", "9007199254740993"),
    *("9223372036854775808", "18446744073709551616", "-9223372036854775809", "1" * 400, "9" * 5000, "0." + "3" * 5000),
    *('"\\ud800"', '"\\u0000"', '"1e999999999"', '"NaN"', '"2026-13-45T00:00:00Z"', '"99999-01-01T00:00:00Z"'),
    *('"web"', '"5"', '"٣"', '"sNaN"', '"1970-01-01T00:00:00+23:59"', '"0001-01-01T00:00:00Z"'),
]
# Values that are no JSON, or very large.
ODD = [
    *("NaN", "Infinity", "-Infinity", "nan", "01", "+1", ".5", "1.", "0x10", "'a'", "undefined", "1,,", "/**/1"),
    '"\\ud800\\u0041"',
    '"\\x41"',
    '"\n"',
    '"' + "x" * LARGE + '"',
    "[" * DEEP + "]" * DEEP,
    '{"a":' * DEEP + "1" + "}" * DEEP,
    "[" + "1," * 200_000 + "1]",
    "1" * LARGE,
]


def hostile() -> Iterator[bytes]:
    """Yields some five hundred values, all different."""
    whole = written(GOOD)
    for name in GOOD:
        for value in VALUES:
            yield spoilt(name, value)
        yield written({other: value for other, value in GOOD.items() if other != name})
    for name in ("double", "long", "text", "price", "items"):
        for value in ODD:
            yield spoilt(name, value)
    for cost in VALUES:
        yield spoilt("items", f'[{{"cost": 1}}, {{"cost": {cost}}}]')
        yield spoilt("deep", f'{{"er": {{"still": {cost}}}}}')
    yield from (whole[:cut] for cut in range(1, len(whole), 11))
    for at in (0, 1, 9, len(whole) // 2, len(whole) - 1, len(whole)):
        yield whole[:at] + b"\xff\xfe" + whole[at:]
    yield from (
        b"null",
        b"[]",
        b"[1]",
        b"1",
        b'"x"',
        b"true",
        b"{}",
        b" ",
        b"{",
        b"}",
        b"\0",
        b"\0\0\0\0\x05abc",
        b"\x1f",
    )
    yield from (whole + b"x", whole * 2, b"[" + whole + b"]", b"\xef\xbb\xbf" + whole, gzip.compress(whole, mtime=0))
    yield from (whole.decode().encode(code) for code in ("utf-16", "utf-32", "utf-7"))
    yield b'{"' + b"k" * LARGE + b'": 1}'
    yield b'{"a": ' * DEEP + b"1" + b"}" * DEEP
    yield b"[" * LARGE
    yield b"{" + b",".join(b'"key%d":%d' % (n, n) for n in range(60_000)) + b"}"
    yield b"{" + b",".join([b'"long":1'] * 90_000) + b"}"
    yield b"{" + b'"id":7,' * 3 + whole[1:]
    yield b" " * LARGE + whole
    yield spoilt("text", '"' + "\\u00e9" * (LARGE // 6) + '"')


def written(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record).encode()


def spoilt(name: str, value: str) -> bytes:
    """The good record with this text, perhaps no JSON, as a field."""
    fields = [f'"{other}": {value if other == name else json.dumps(right)}' for other, right in GOOD.items()]
    return ("{" + ", ".join(fields) + "}").encode("utf-8", "surrogatepass")


def right_fields(value: bytes) -> dict[str, Any]:
    """The answer's fields for this value, by Python's own JSON: of the kept id, and of numbers that inputs hold."""
    record = read(value)
    instant = record["at"]
    if isinstance(instant, str):
        instant = round(datetime.fromisoformat(instant).timestamp() * 1000)
    return {
        "id": record.get("id"),
        "single_out": single(record["single"]),
        "double_out": float(record["double"]),
        "long_out": int(record["long"]),
        "tiny_out": int(record["tiny"]),
        "flag_out": record["flag"],
        "as_number_out": float(record["as_number"]),
        "channel_out": CHANNELS.index(record["channel"]),
        "text_out": record["text"],
        "at_out": int(instant),
        "price_out": float(_decimal(record["price"])),
        "deep_out": single(record["deep"]["er"]["still"]),
        "items_out": [single(item["cost"]) for item in record["items"]],
    }


def read(value: bytes) -> Any:
    """Python's own reading of a JSON text; a whole number of thousands of digits stays a text."""
    return json.loads(value, parse_int=lambda digits: int(digits) if len(digits) < 4000 else digits)


def as_held(fields: dict[str, Any]) -> dict[str, Any]:
    """An answer's fields with each FP32 as it is: it is written with the fewest digits that say which one it is."""
    singles = {name: single(fields[name]) for name in ("single_out", "deep_out")}
    return {**fields, **singles, "items_out": list(map(single, fields["items_out"]))}


def _decimal(price: Any) -> Decimal:
    try:
        return Decimal(str(price))
    except InvalidOperation as error:
        raise AssertionError(f"{price!r} was taken for a decimal") from error


def single(number: float) -> float:
    """The nearest FP32."""
    found = float(np.float32(number))
    assert math.isfinite(found), f"{number} was taken for a finite FP32"
    return found


def hostile_texts() -> Iterator[bytes]:
    """Yields JSON with texts as `body` that cost a careless tokenizer time or memory, or that it cannot take."""
    size = LARGE // 2
    texts = [
        *("", " ", "\0", "\t\n\r", "the", "[MASK]", "[CLS] [SEP] [PAD]", "\u200b", "\u202e", "e" + "\u0301" * 2000),
        *(letter * size for letter in ("a", " ", "the ", "a ", ".", "[MASK]", "[", "\0", "0")),
        *(sign * (size // 6) for sign in ("é", "猫", "🐈", "👩‍👩‍👧", "\u0301", "\u200d", "ﷺ", "\u00a0", "ǆ")),
        "".join(map(chr, range(1, 0xD800))),
        " ".join(f"word{n}" for n in range(60_000)),
        ("x" * 5000 + " ") * (size // 5001),
        "the " * 255 + "x" * size,
    ]
    for text in texts:
        yield json.dumps({"id": 1, "body": text}).encode()
        yield json.dumps({"id": 1, "body": text}, ensure_ascii=False).encode()
    for value in VALUES + ODD:
        yield f'{{"id": 1, "body": {value}}}'.encode("utf-8", "surrogatepass")


def hostile_pictures() -> Iterator[bytes]:
    """Yields pictures that are none, that are cut or spoilt, and that claim more than they should."""
    right = photo(np.random.default_rng(1), 64, 48)
    for kind in ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "ICO"):
        whole = saved(right, kind)
        yield whole
        yield from (whole[: len(whole) * part // 5] for part in range(1, 5))
        for seed in range(6):
            spoilt_one = bytearray(whole)
            for at in np.random.default_rng(seed).integers(0, len(whole), 20):
                spoilt_one[at] ^= 1 + seed * 37
            yield bytes(spoilt_one)
    for side in (1, 2, 4_000, 13_000, 60_000):
        yield saved(Image.new("1", (side, 1)), "PNG")
        yield saved(Image.new("1", (1, side)), "PNG")
    for side in (4_000, 9_000, 13_000):  # a bomb: some kilobytes that are up to half a gigabyte
        yield saved(Image.new("L", (side, side)), "PNG", compress_level=9)
    yield saved(Image.new("RGB", (9_000, 9_000)), "JPEG", quality=1)
    yield saved(Image.new("RGB", (16_383, 8_000)), "WEBP", quality=0, method=0)
    claims = bytearray(saved(right, "PNG"))
    for wide, high in ((2**31 - 1, 2**31 - 1), (0, 0), (2**32 - 1, 1), (1, 2**31 - 1)):
        claims[16:24] = wide.to_bytes(4) + high.to_bytes(4)
        claims[29:33] = zlib.crc32(claims[12:29]).to_bytes(4)
        yield bytes(claims)
    yield from (b"x", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"RIFF\xff\xff\xff\xffWEBPVP8 ", b"<svg/>")
    yield from (b"%PDF-1.7", b"\xff" * LARGE, b"\0" * LARGE, b"\xff\xd8" + b"\xff\xe1\xff\xff" + b"x" * LARGE)


def saved(picture: Image.Image, kind: str, **options: Any) -> bytes:
    """The picture in this format."""
    file = io.BytesIO()
    (picture.convert("P") if kind == "GIF" else picture).save(file, kind, **options)
    return file.getvalue()
