"""Judges encoded pictures by their headers, before a library takes memory or time for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

# A progressive JPEG of 200 KB with 100 scans took 10 s, because each passes over all pixels. Encoders write 12 at most.
# Pillow takes 7 µs for a segment, and up to 2.4 ms for a profile; usual are 5 to 30 of them (both 2026-11).
MOST_SCANS, MOST_SEGMENTS = 50, 500
# Bytes between the segments of a JPEG. Pillow takes 0.1 µs for each (2026-11), and the standard allows none.
MOST_STRAY_BYTES = 10_000

_FORMATS = {b"\xff\xd8\xff": "JPEG", b"\x89PNG\r\n\x1a\n": "PNG", b"RIFF": "WEBP"}
_OTHERS = {
    b"GIF8": "a GIF",
    b"BM": "a BMP",
    b"II*\0": "a TIFF",
    b"MM\0*": "a TIFF",
    b"%PDF": "a PDF",
    b"<": "XML, perhaps an SVG",
    b"data:": "a data URL: send the bytes",
    b"/9j/": "base64: send the bytes",
    b"iVBOR": "base64: send the bytes",
    b"UklGR": "base64: send the bytes",
}
# Markers of a JPEG. A scan of a baseline JPEG has bits for each block of pixels, so its scans are no flood.
_SCAN, _BASELINE = 0xDA, 0xC0
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # the markers of a header with the size
_WITHOUT_LENGTH = {0x00, 0x01, 0xFF, *range(0xD0, 0xDA)}


class Unfit(Exception):
    """A picture cannot be taken. The message says why."""


def format_of(value: bytes) -> str:
    """Pillow's name of the format: JPEG, PNG or WEBP. Raises `Unfit` for others, and for floods of segments."""
    found = next((name for first, name in _FORMATS.items() if value.startswith(first)), None)
    if found == "JPEG":
        _check_jpeg(value)
    elif found == "PNG":
        _check_png(value)
    elif found is None or value[8:12] != b"WEBP":
        other = next((words for first, words in _OTHERS.items() if value.startswith(first)), None)
        other = "HEIF or AVIF" if value[4:8] == b"ftyp" else other
        raise Unfit(f"expected a picture, JPEG, PNG or WebP{f', got {other}' if other else ''}")
    return found


def claimed_size(value: bytes) -> tuple[int, int]:
    """The height and the width that the header of a JPEG, PNG or WebP claims; zeros if it has none."""
    if value.startswith(b"\x89PNG"):
        return int.from_bytes(value[20:24]), int.from_bytes(value[16:20])
    return _size_of_webp(value) if value.startswith(b"RIFF") else _size_of_jpeg(value)


def pixels_of_webp(value: bytes) -> int:
    """The number of pixels that the header claims. Pillow takes memory for all of them when it opens one."""
    height, width = _size_of_webp(value)
    return height * width


def _size_of_webp(value: bytes) -> tuple[int, int]:
    match value[12:16]:
        case b"VP8X":
            return _number(value, 27, 30) + 1, _number(value, 24, 27) + 1
        case b"VP8L":
            sides = _number(value, 21, 25)
            return (sides >> 14 & 0x3FFF) + 1, (sides & 0x3FFF) + 1
    return _number(value, 28, 30) & 0x3FFF, _number(value, 26, 28) & 0x3FFF


def _size_of_jpeg(value: bytes) -> tuple[int, int]:
    with suppress(Unfit):
        for at in _markers(value):
            if value[at] in _FRAMES:
                return int.from_bytes(value[at + 4 : at + 6]), int.from_bytes(value[at + 6 : at + 8])
    return 0, 0


def _check_jpeg(value: bytes) -> None:
    markers = {value[at] for at in _markers(value)}
    if _BASELINE not in markers and value.count(bytes([0xFF, _SCAN])) > MOST_SCANS:
        raise Unfit(f"the JPEG has more than {MOST_SCANS} scans")


def _markers(value: bytes) -> Iterator[int]:
    """Yields the places of a JPEG's markers before its first scan. Raises `Unfit` for floods."""
    at, stray = 2, 0
    for _ in range(MOST_SEGMENTS):
        before = at
        at = value.find(b"\xff", at) + 1
        stray += (at or len(value)) - before
        if stray > MOST_STRAY_BYTES:
            raise Unfit("the JPEG is damaged: its segments do not follow one another")
        if not 0 < at < len(value) or value[at] == _SCAN:
            return
        yield at
        if value[at] not in _WITHOUT_LENGTH:
            at += 1 + int.from_bytes(value[at + 1 : at + 3])
    raise _flood("JPEG")


def _check_png(value: bytes) -> None:
    at, segments = 8, 0
    while at < len(value):
        segments += value[at + 4 : at + 8] != b"IDAT"
        if segments > MOST_SEGMENTS:
            raise _flood("PNG")
        at += 12 + int.from_bytes(value[at : at + 4])


def _flood(name: str) -> Unfit:
    return Unfit(f"the {name} has more than {MOST_SEGMENTS} segments besides its pixels")


def _number(value: bytes, start: int, end: int) -> int:
    return int.from_bytes(value[start:end], "little")
