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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from worker.core.failures import BadConfiguration, Code, RowFault
from worker.core.records import Array
from worker.core.tensors.specs import TensorSpec
from worker.inference.records.image_headers import Unfit, claimed_size, format_of, pixels_of_webp
from worker.inference.records.image_processor import LAYOUT, entries_of
from worker.inference.records.image_steps import NUMBERS, SECTION, Steps, has_steps, picture_input, steps_for
from worker.inference.records.parts import Column, Prepared

if TYPE_CHECKING:
    from PIL.Image import Image

SERVED = "image"
# Most cameras have 24 million pixels or fewer. While it is decoded, a pixel takes 4 bytes of memory in a plain JPEG, 12
# in one of several scans or in CMYK, 13 in a transparent PNG and 23 in a transparent WebP (2026-11).
MAX_PIXELS, BYTES_OF_A_PIXEL = 25_000_000, 23
# Pixels that a thread decodes for one run, where a batch has more: 0.1 s of one core for JPEG, up to four times as much
# for others (2026-11). 32 usual pictures of 640 x 480 have 10 million.
PIXELS_AT_ONCE = 16_000_000
_ORIENTATION = 0x0112  # the EXIF tag
# By the tag's value: FLIP_LEFT_RIGHT, ROTATE_180, FLIP_TOP_BOTTOM, TRANSPOSE, ROTATE_270, TRANSVERSE, ROTATE_90.
_TURNS = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}


def images_of(
    inputs: Sequence[TensorSpec],
    image: Mapping[str, Any],
    processor: Path | None,
    threads: int,
    *,
    leaves_rows: bool = False,
) -> Images:
    """The preparation that a table `[records.image]` and a `preprocessor_config.json` ask for, for a model's inputs.

    `threads` may be 0: as many as cores. `leaves_rows`: large pictures of a batch may be left for a later run. Raises
    `BadConfiguration`.
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
    threads = threads or len(os.sched_getaffinity(0))
    at_once = PIXELS_AT_ONCE * threads if leaves_rows else None
    return Images(spec, steps, field, threads, image.get("max_pixels") or MAX_PIXELS, at_once)


class Images:
    """A `Preparation` that makes one input of encoded pictures. Owns its threads."""

    def __init__(
        self,
        spec: TensorSpec,
        steps: Steps,
        field: str,
        threads: int,
        max_pixels: int = MAX_PIXELS,
        at_once: int | None = None,
    ) -> None:
        """`field` is the record's field, for messages. `at_once`: the most pixels of a run, but one picture at least.

        Raises `BadConfiguration` if Pillow is missing.
        """
        try:
            from PIL import Image, WebPImagePlugin  # noqa: F401, PLC0415 - an extra; to import WebP is to know it
        except ImportError as error:
            raise BadConfiguration(
                f"{SECTION} needs Pillow, which is not installed here: pip install 'inference-worker[images]'"
            ) from error
        warnings.filterwarnings("ignore", module=r"PIL\.")  # of malformed pictures, which are answered or decoded
        Image.preinit()  # JPEG and PNG, before the first record
        self._pillow = Image
        self._steps = steps
        self._dtype = spec.dtype
        self._field = field
        self._max_pixels = max_pixels
        self._at_once = at_once
        self.takes: Sequence[TensorSpec] = (TensorSpec(SERVED, "BYTES", ()),)
        self.makes = (spec.name,)
        self._map: Callable[..., Iterable[RowFault | None]] = map
        if threads > 1:
            self._map = ThreadPoolExecutor(threads, "pictures").map

    def prepare(self, feeds: Mapping[str, Array]) -> Prepared:
        """Make the input of these rows: shape (rows, *dims). The largest pictures of too many pixels are left."""
        pictures = feeds[SERVED]
        left = self._left(pictures)
        taken = [row for row in range(len(pictures)) if row not in left]
        if left:
            pictures = pictures[taken]
        batch = np.empty((len(pictures), *self._steps.dims), self._dtype)
        found = dict(zip(taken, self._map(self._write, pictures, batch), strict=True))
        faults = {row: fault for row, fault in found.items() if fault is not None}
        if faults:
            batch = batch[[at for at, row in enumerate(taken) if row not in faults]]
        [name] = self.makes
        return Prepared({name: Column(batch)}, faults, left)

    def _left(self, pictures: Array) -> Collection[int]:
        """The rows for a later run: the largest, by what headers claim. A picture that is refused costs nothing."""
        if self._at_once is None:
            return ()
        left, pixels = set[int](), 0
        work = list(map(self._work, pictures))
        for at, row in enumerate(sorted(range(len(work)), key=work.__getitem__)):
            pixels += work[row]
            if at and pixels > self._at_once:
                left.add(row)
        return left

    def _work(self, value: bytes) -> int:
        """The pixels to decode or to make, whichever are more."""
        height, width = size = claimed_size(value)
        if not 0 < height * width <= self._max_pixels:
            return 0
        high, wide = self._steps.resized(size)
        return max(height * width, high * wide if high * wide <= self._max_pixels else 0)

    def _write(self, value: bytes, row: Array) -> RowFault | None:
        """Write one picture's numbers into its row."""
        try:
            picture = self._fitted(self._decoded(value))
        except Unfit as unfit:
            return RowFault(Code.INVALID_ARGUMENT, f"{self._field}: {unfit}")
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
        name = format_of(value)
        pixels = pixels_of_webp(value) if name == "WEBP" else 0
        self._check_size(pixels)
        try:
            picture = self._pillow.open(BytesIO(value), formats=(name,))
            pixels = picture.width * picture.height
            self._check_size(pixels)
            picture.load()
        except self._pillow.DecompressionBombError:  # Pillow itself refuses so many pixels
            self._check_size(inf)
            raise
        except (OSError, EOFError):
            np.empty(
                pixels * BYTES_OF_A_PIXEL, np.uint8
            )  # libjpeg and libwebp do not tell a lack of memory from damage
            raise
        return self._converted(self._upright(picture))

    def _check_size(self, pixels: float) -> None:
        if pixels > self._max_pixels:
            raise Unfit(f"the picture has more than {self._max_pixels} pixels")

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
                raise Unfit(f"the picture has {width} x {height} pixels, and is too narrow to be resized")
            picture = picture.resize(size[::-1], self._pillow.Resampling(self._steps.resample))
        if self._steps.crop in (None, size):
            return picture
        rows, columns = self._steps.size
        top, left = (size[0] - rows) // 2, (size[1] - columns) // 2
        return picture.crop((left, top, left + columns, top + rows))
