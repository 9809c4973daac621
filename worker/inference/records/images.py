"""Makes a model's input of pictures: JPEG, PNG and WebP, decoded and resized by Pillow, side by side on some threads.

Pillow lets go of the interpreter while it decodes and resizes. Each picture is written into its row of one array for
the batch. Pictures come from outside: the size that a header claims is judged before memory is taken for it, and a
picture that cannot be decoded is the fault of its row alone.

| a picture | is |
|---|---|
| turned by its EXIF orientation | turned upright, as people see it |
| transparent | laid on white |
| of 16 bits a channel | taken with its upper 8 bits |
| animated | its first frame |
| of another format | refused |
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from worker.core.failures import BadConfiguration, Code, RowFault
from worker.core.records import Array
from worker.core.tensors.specs import TensorSpec
from worker.inference.records.image_processor import LAYOUT, entries_of
from worker.inference.records.image_steps import NUMBERS, SECTION, Steps, has_steps, picture_input, steps_for
from worker.inference.records.parts import Column, Prepared

if TYPE_CHECKING:
    from PIL.Image import Image

SERVED = "image"
# Most cameras have 24 million pixels or fewer. While it is decoded, a pixel takes 4 bytes of memory in a plain JPEG, 12
# in one of several scans or in CMYK, 13 in a transparent PNG and 23 in a transparent WebP (2026-11).
MAX_PIXELS = 25_000_000
# A progressive JPEG of 200 KB with 100 scans took 10 s, because each passes over all pixels. Encoders write 12 at most.
# Pillow parses the segments before the pixels in Python, 7 µs for each; usual are 5 to 30 (both 2026-11).
MOST_SCANS, MOST_SEGMENTS = 50, 1000

_KINDS = {b"\xff\xd8\xff": "JPEG", b"\x89PNG\r\n\x1a\n": "PNG", b"RIFF": "WEBP"}
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
_ORIENTATION = 0x0112  # the EXIF tag
# By the tag's value: FLIP_LEFT_RIGHT, ROTATE_180, FLIP_TOP_BOTTOM, TRANSPOSE, ROTATE_270, TRANSVERSE, ROTATE_90.
_TURNS = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}


class _Unfit(Exception):
    """A picture cannot be taken. The message says why."""


def images_of(inputs: Sequence[TensorSpec], image: Mapping[str, Any], processor: Path | None, threads: int) -> Images:
    """The preparation that a table `[records.image]` and a `preprocessor_config.json` ask for, for a model's inputs.

    `threads` may be 0: as many as cores. Raises `BadConfiguration`.
    """
    spec = picture_input(inputs, image.get("input"))
    if processor is None or has_steps(image):
        steps = steps_for(spec, image)
    else:
        entries = entries_of(processor)
        if not spec.is_float:  # then the model scales the pixels itself
            entries = {name: value for name, value in entries.items() if name not in NUMBERS}
        steps = steps_for(spec, {**image, **entries}, LAYOUT)
    field = image["field"] if isinstance(image["field"], str) else ".".join(image["field"])
    return Images(spec, steps, field, threads or len(os.sched_getaffinity(0)), image.get("max_pixels") or MAX_PIXELS)


class Images:
    """A `Preparation` that makes one input of encoded pictures. Owns its threads."""

    def __init__(self, spec: TensorSpec, steps: Steps, field: str, threads: int, max_pixels: int = MAX_PIXELS) -> None:
        """`field` is the record's field, for messages. Raises `BadConfiguration` if Pillow is missing."""
        try:
            from PIL import Image, JpegImagePlugin, PngImagePlugin, WebPImagePlugin  # noqa: F401, PLC0415 - an extra
        except ImportError as error:
            raise BadConfiguration(
                f"{SECTION} needs Pillow, which is not installed here: pip install 'inference-worker[images]'"
            ) from error
        warnings.filterwarnings("ignore", module=r"PIL\.")  # of malformed pictures, which are answered or decoded
        self._pillow = Image
        self._steps = steps
        self._dtype = spec.dtype
        self._field = field
        self._max_pixels = max_pixels
        self._too_many = f"the picture has more than {max_pixels} pixels"
        self.takes: Sequence[TensorSpec] = (TensorSpec(SERVED, "BYTES", ()),)
        self.makes = (spec.name,)
        self._map: Callable[..., Iterable[RowFault | None]] = map
        if threads > 1:
            self._map = ThreadPoolExecutor(threads, "pictures").map

    def prepare(self, feeds: Mapping[str, Array]) -> Prepared:
        """Make the input of these rows: shape (rows, *dims)."""
        pictures = feeds[SERVED]
        batch = np.empty((len(pictures), *self._steps.dims), self._dtype)
        faults = enumerate(self._map(self._write, pictures, batch))
        [name] = self.makes
        return Prepared({name: Column(batch)}, {row: fault for row, fault in faults if fault is not None})

    def _write(self, value: bytes, row: Array) -> RowFault | None:
        """Write one picture's numbers into its row."""
        try:
            picture = self._fitted(self._decoded(value))
        except _Unfit as unfit:
            return RowFault(Code.INVALID_ARGUMENT, f"{self._field}: {unfit}")
        except self._pillow.DecompressionBombError:  # it claims so many pixels that Pillow refuses it first
            return RowFault(Code.INVALID_ARGUMENT, f"{self._field}: {self._too_many}")
        except MemoryError:
            why = "takes more memory than there is (WORKER_MODEL__MEMORY_LIMIT)"
            return RowFault(Code.RESOURCE_EXHAUSTED, f"{self._field}: the picture {why}")
        except Exception as error:  # noqa: BLE001  # Pillow's parsers raise whatever a malformed file leads them to
            why = "is cut short" if "truncated" in str(error) else "is damaged"
            return RowFault(Code.INVALID_ARGUMENT, f"{self._field}: the picture {why} and cannot be decoded")
        steps, pixels = self._steps, np.asarray(picture)
        pixels = pixels.reshape(*steps.size, -1)[..., :: -1 if steps.is_bgr else 1]
        planes = np.moveaxis(row, steps.channels_at, 0)
        if steps.table is None:
            planes[...] = np.moveaxis(pixels, -1, 0)
            return None
        for channel, numbers in enumerate(steps.table):
            np.take(numbers, pixels[..., channel], out=planes[channel], mode="clip")
        return None

    def _decoded(self, value: bytes) -> Image:
        """The picture, upright and in the channels wanted."""
        kind = _kind(value)
        if kind == "WEBP":
            self._check_size(*_webp_size(value))  # Pillow opens it with the memory for all of its pixels
        elif _is_flooded(value, kind):
            raise _Unfit(f"the {kind} has more than {MOST_SEGMENTS} segments besides its pixels")
        picture = self._pillow.open(BytesIO(value), formats=(kind,))
        self._check_size(*picture.size)
        if "progressive" in picture.info and value.count(b"\xff\xda") > MOST_SCANS:
            raise _Unfit(f"the JPEG has more than {MOST_SCANS} scans")
        picture.load()
        return self._converted(self._upright(picture))

    def _check_size(self, width: int, height: int) -> None:
        if width * height > self._max_pixels:
            raise _Unfit(self._too_many)

    def _upright(self, picture: Image) -> Image:
        try:
            turn = _TURNS.get(picture.getexif().get(_ORIENTATION))  # type: ignore[arg-type]  # None has no turn
        except Exception:  # noqa: BLE001  # as above; EXIF is no part of the pixels
            return picture
        return picture if turn is None else picture.transpose(self._pillow.Transpose(turn))

    def _converted(self, picture: Image) -> Image:
        mode = self._steps.mode
        if picture.mode.startswith("I;16"):
            return picture.point(lambda value: value / 256).convert("L").convert(mode)
        if "A" in picture.getbands() or picture.info.get("transparency") is not None:
            picture = picture.convert("RGBA")
            white = self._pillow.new("RGB", picture.size, "white")
            white.paste(picture, mask=picture.getchannel("A"))
            picture = white
        return picture if picture.mode == mode else picture.convert(mode)

    def _fitted(self, picture: Image) -> Image:
        """The picture resized, and cropped at its centre; black around it where it is smaller than the crop."""
        width, height = picture.size
        size = self._steps.resized((height, width))
        if size != (height, width):
            if size[0] * size[1] > self._max_pixels:
                raise _Unfit(f"the picture has {width} x {height} pixels, and is too narrow to be resized")
            picture = picture.resize(size[::-1], self._pillow.Resampling(self._steps.resample))
        if self._steps.crop in (None, size):
            return picture
        rows, columns = self._steps.size
        top, left = (size[0] - rows) // 2, (size[1] - columns) // 2
        return picture.crop((left, top, left + columns, top + rows))


def _kind(value: bytes) -> str:
    """Pillow's name of the format. Raises `_Unfit` for another one than the three."""
    kind = next((kind for first, kind in _KINDS.items() if value.startswith(first)), None)
    if kind is not None and (kind != "WEBP" or value[8:12] == b"WEBP"):
        return kind
    found = next((words for first, words in _OTHERS.items() if value.startswith(first)), None)
    if value[4:8] == b"ftyp":
        found = "HEIF or AVIF"
    raise _Unfit(f"expected a picture, JPEG, PNG or WebP{f', got {found}' if found else ''}")


def _webp_size(value: bytes) -> tuple[int, int]:
    """The width and height in a WebP's header."""
    first = int.from_bytes(value[24:27], "little"), int.from_bytes(value[27:30], "little")
    if value[12:16] == b"VP8X":
        return first[0] + 1, first[1] + 1
    if value[12:16] == b"VP8L":
        bits = int.from_bytes(value[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return int.from_bytes(value[26:28], "little") & 0x3FFF, int.from_bytes(value[28:30], "little") & 0x3FFF


def _is_flooded(value: bytes, kind: str) -> bool:
    """True if a PNG or JPEG has so many segments that these take more time than its pixels."""
    if kind == "PNG":
        at, segments = 8, 0
        while at < len(value) and segments <= MOST_SEGMENTS:
            segments += value[at + 4 : at + 8] != b"IDAT"
            at += 12 + int.from_bytes(value[at : at + 4])
        return segments > MOST_SEGMENTS
    at = 2
    for _ in range(MOST_SEGMENTS):
        at = value.find(b"\xff", at)
        if at < 0 or value[at + 1 : at + 2] in (b"\xda", b""):
            return False
        has_length = value[at + 1] not in _WITHOUT_LENGTH
        at += 2 + int.from_bytes(value[at + 2 : at + 4]) if has_length else 1
    return True


_WITHOUT_LENGTH = {0x00, 0x01, 0xFF, *range(0xD0, 0xDA)}
