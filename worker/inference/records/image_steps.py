"""The steps from a picture to the numbers of a model's input: its size, its crop, and a table of its values.

The steps are those of Hugging Face's image processors, in their order: RGB, resize, crop at the centre, scale, mean and
standard deviation. They come from `[records.image]`, and if it has none, from a `preprocessor_config.json`
(`image_processor.py`). Nothing is guessed, because a picture that is prepared in another way than in training gets a
wrong answer without an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from worker.core.failures import BadConfiguration, listed
from worker.core.records import Array
from worker.core.tensors.specs import TensorSpec

SECTION = "[records.image]"
SCALE = 1 / 255  # unless set
# Pillow's numbers, which the files of Hugging Face have, too.
RESAMPLING = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5}
_LAYOUTS = {"NCHW": 0, "NHWC": 2}  # the position of the channels among the dimensions of a row
NUMBERS = ("scale", "mean", "std")
_ENTRIES = ("resize", "crop", "resample", *NUMBERS, "channels")
_CHANNELS = {"rgb": 3, "bgr": 3, "gray": 1}

Size = tuple[int, int]  # height, width


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps for one input. `table` has a row of 256 numbers for each channel; None: the pixels as they are."""

    resize: tuple[int, ...]  # the shorter side, or height and width; empty: as it is
    crop: Size | None
    resample: int
    mode: str  # Pillow's name for the channels: RGB or L
    is_bgr: bool
    channels_at: int  # their position among the dimensions of a row
    size: Size
    table: Array | None

    @property
    def dims(self) -> tuple[int, ...]:
        """The dimensions of a row."""
        dims = [*self.size]
        dims.insert(self.channels_at, len(self.mode))
        return tuple(dims)

    def resized(self, size: Size) -> Size:
        """The size that a picture of this size is resized to."""
        match self.resize:
            case (side,):
                other = int(side * max(size) / min(size))
                return (side, other) if size[0] < size[1] else (other, side)
            case (height, width):
                return height, width
        return size


def picture_input(inputs: Sequence[TensorSpec], name: str | None) -> TensorSpec:
    """The input that takes pictures: the one of that name, or the only one that can. Raises `BadConfiguration`."""
    fit = [spec for spec in inputs if len(spec.dims) == 3 and (spec.is_float or spec.datatype == "UINT8")]
    chosen = [spec for spec in inputs if spec.name == name] if name else fit
    if len(chosen) == 1 and chosen[0] in fit:
        return chosen[0]
    if name or not fit:
        raise BadConfiguration(
            f"{SECTION} input: the model takes no pictures as {name or 'any input'} (UINT8 or floats, three dimensions "
            f"after the batch); it takes {listed(inputs)}"
        )
    raise BadConfiguration(f"{SECTION} input: several could take pictures ({listed(fit)}): name one")


def has_steps(image: Mapping[str, Any]) -> bool:
    """True if this table has a step of its own, so that no file counts."""
    return any(image.get(name) is not None for name in _ENTRIES)


def steps_for(spec: TensorSpec, given: Mapping[str, Any], usual_layout: str | None = None) -> Steps:
    """The steps for this input, by these entries. Raises `BadConfiguration`.

    `usual_layout` is the layout of an input that does not tell its own.
    """
    entries = {name: given[name] for name in _ENTRIES if given.get(name) is not None}
    layout, channels = _channels(spec, given.get("layout"), usual_layout, entries.get("channels"))
    at = _LAYOUTS[layout]
    wanted = tuple(dim for place, dim in enumerate(spec.dims) if place != at)
    resize, crop, size = _sizes(spec, wanted, entries)
    resample = RESAMPLING[entries.get("resample", "bilinear")]
    mode = "L" if channels == "gray" else "RGB"
    table = None
    if spec.is_float:
        table = _table(spec, len(mode), entries)
    elif idle := [name for name in NUMBERS if name in entries]:
        raise BadConfiguration(f"{SECTION} {idle[0]}: {spec} takes the pixels as they are: leave it out")
    return Steps(resize, crop, resample, mode, channels == "bgr", at, size, table)


def _channels(spec: TensorSpec, layout: str | None, usual: str | None, wanted: str | None) -> tuple[str, str]:
    """The layout and the order of the channels. `usual` is the layout of an input that does not tell its own."""
    counts = {_CHANNELS[wanted]} if wanted else {1, 3}
    fit = [name for name, at in _LAYOUTS.items() if spec.dims[at] in counts]
    loose = [name for name, at in _LAYOUTS.items() if spec.dims[at] is None]
    layout = layout or (fit[0] if len(fit) == 1 else usual)
    if layout is None and (fit or loose):
        raise BadConfiguration(f"{SECTION} layout: {spec} does not tell where its channels are: set NCHW or NHWC")
    if layout not in (*fit, *loose):
        what = f"{wanted} pictures" if wanted else "pictures of one or three channels"
        raise BadConfiguration(f"{SECTION} channels: {spec} takes no {what}{f' as {layout}' if layout else ''}")
    return layout, wanted or ("gray" if spec.dims[_LAYOUTS[layout]] == 1 else "rgb")


def _sizes(
    spec: TensorSpec, wanted: Sequence[int | None], entries: Mapping[str, Any]
) -> tuple[tuple[int, ...], Size | None, Size]:
    """The size to resize to, the crop, and the size that comes out."""
    height, width = wanted
    fixed = None if height is None or width is None else (height, width)
    resize, crop = tuple(entries.get("resize", ())), _size(entries.get("crop", ()))
    if crop is None and len(resize) == 1:
        crop = fixed or _size(resize)
    if crop is None and not resize:
        resize = fixed or ()
    size = crop or _size(resize)
    if size is None:
        raise BadConfiguration(f"{SECTION} resize: {spec} takes pictures of any size: set one, such as [224, 224]")
    if any(dim not in (None, length) for dim, length in zip(wanted, size, strict=True)):
        entry = "crop" if crop else "resize"
        raise BadConfiguration(f"{SECTION} {entry}: {list(size)} is not the height and width of {spec}")
    return resize, crop, size


def _size(sides: Sequence[int]) -> Size | None:
    """Height and width; one number is both of them."""
    return (sides[0], sides[-1]) if sides else None


def _table(spec: TensorSpec, channels: int, entries: Mapping[str, Any]) -> Array:
    """The numbers of each channel's 256 values, computed in single precision, as Hugging Face's processors do."""
    if not any(name in entries for name in NUMBERS):
        raise BadConfiguration(
            f"{SECTION} mean: {spec} takes numbers, and nothing says which: set scale, mean and std as in its training "
            "(often mean = [0.485, 0.456, 0.406] and std = [0.229, 0.224, 0.225]; scale is 1/255 unless set)"
        )
    mean, std = (_each(name, entries.get(name, blank), channels) for name, blank in (("mean", 0.0), ("std", 1.0)))
    table: Array = (np.arange(256) * entries.get("scale", SCALE)).astype("f4")
    return ((table - mean) / std).astype(spec.dtype)


def _each(name: str, value: Any, channels: int) -> Array:
    """One number for each channel, as a column."""
    numbers = np.array(value, "f4").reshape(-1, 1)
    if len(numbers) not in (1, channels):
        raise BadConfiguration(f"{SECTION} {name}: {len(numbers)} numbers for {channels} channels: give one for each")
    if name == "std" and not numbers.all():
        raise BadConfiguration(f"{SECTION} std: nothing can be divided by 0")
    return np.broadcast_to(numbers, (channels, 1))
