"""The steps from a picture to the numbers of a model's input: its size, its crop, and a table of its values.

Entries come from `[records.image]`. If it has no step, they come from the `preprocessor_config.json` of a Hugging Face
folder, whose image processors take these steps in this order: RGB, resize, crop at the centre, rescale, normalise.
Nothing is guessed: a step that is not known here is refused, because a picture that is prepared in another way than in
training gets a wrong answer without an error.
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
# Pillow's numbers, which the files of Hugging Face have, too.
RESAMPLING = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5}
_LAYOUTS = {"NCHW": 0, "NHWC": 2}  # the position of the channels among the dimensions of a row
_NUMBERS = ("scale", "mean", "std")
_ENTRIES = ("resize", "crop", "resample", *_NUMBERS, "channels")
_CHANNELS = {"rgb": 3, "bgr": 3, "gray": 1}

# Whether a `size` of one number is the shorter side (else both), by the name of the processor. Others have steps of
# their own: LeViT enlarges the size, EfficientNet normalises twice, DINOv3 rescales first.
_IS_SHORTER_SIDE = {
    **dict.fromkeys(("Beit", "DeiT", "ViT"), False),
    **dict.fromkeys(("Bit", "CLIP", "ChineseCLIP", "ConvNext", "MobileNetV1", "MobileNetV2"), True),
    **dict.fromkeys(("MobileViT", "PoolFormer", "Siglip"), True),
}
_WARPED_FROM = 384  # ConvNext crops pictures that are smaller than this
_STEPS = {"do_resize", "do_center_crop", "do_rescale", "do_normalize", "do_convert_rgb", "do_flip_channel_order"}
_OF_LABELS = {"do_reduce_labels"}

Size = tuple[int, int]  # height, width


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps for one input. `table` has a row of 256 numbers for each channel; None: the pixels as they are."""

    resize: int | Size | None  # the shorter side, or both
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
        """The size of a picture of this size after the first step."""
        if not isinstance(self.resize, int):
            return self.resize or size
        height, width = size
        short, long = min(size), max(size)
        other = int(self.resize * long / short)
        return (other, self.resize) if width <= height else (self.resize, other)


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


def steps_for(spec: TensorSpec, given: Mapping[str, Any], processor: Mapping[str, Any] | None) -> Steps:
    """The steps for this input, by the entries given and those of a processor. Raises `BadConfiguration`."""
    entries = {name: given[name] for name in _ENTRIES if given.get(name) is not None}
    if processor is not None and not entries:
        entries = _of_processor(processor)
    layout, channels = _channels(spec, given.get("layout"), "NCHW" if processor else None, entries.get("channels"))
    at = _LAYOUTS[layout]
    wanted = tuple(dim for place, dim in enumerate(spec.dims) if place != at)
    resize, crop, size = _sizes(spec, wanted, entries)
    resample = RESAMPLING[entries.get("resample", "bilinear")]
    mode = "L" if channels == "gray" else "RGB"
    table = None
    if spec.is_float:
        table = _table(spec, len(mode), entries)
    elif idle := [name for name in _NUMBERS if given.get(name) is not None]:
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
) -> tuple[int | Size | None, Size | None, Size]:
    """The size to resize to, the crop, and the size that comes out."""
    height, width = wanted
    fixed = None if height is None or width is None else (height, width)
    resize, crop = entries.get("resize"), entries.get("crop")
    crop = _size((crop, crop) if isinstance(crop, int) else crop)
    resize = resize if isinstance(resize, int) else _size(resize)
    if crop is None and isinstance(resize, int):
        crop = fixed or (resize, resize)
    if crop is None and resize is None:
        resize = fixed
    size = crop or _size(resize)
    if size is None:
        raise BadConfiguration(f"{SECTION} resize: {spec} takes pictures of any size: set one, such as [224, 224]")
    if any(dim not in (None, length) for dim, length in zip(wanted, size, strict=True)):
        entry = "crop" if crop else "resize"
        raise BadConfiguration(f"{SECTION} {entry}: {list(size)} is not the height and width of {spec}")
    return resize, crop, size


def _size(pair: Any) -> Size | None:
    return None if pair is None else (pair[0], pair[1])


def _table(spec: TensorSpec, channels: int, entries: Mapping[str, Any]) -> Array:
    """The numbers of each channel's 256 values, computed in single precision, as Hugging Face's processors do."""
    if not any(name in entries for name in _NUMBERS):
        raise BadConfiguration(
            f"{SECTION} mean: {spec} takes numbers, and nothing says which: set scale, mean and std as in its training "
            "(often mean = [0.485, 0.456, 0.406] and std = [0.229, 0.224, 0.225]; scale is 1/255 unless set)"
        )
    mean, std = (_each(name, entries.get(name, blank), channels) for name, blank in (("mean", 0.0), ("std", 1.0)))
    table: Array = (np.arange(256) * entries.get("scale", 1 / 255)).astype("f4")
    return ((table - mean) / std).astype(spec.dtype)


def _each(name: str, value: Any, channels: int) -> Array:
    """One number for each channel, as a column."""
    numbers = np.array(value, "f4").reshape(-1, 1)
    if len(numbers) not in (1, channels):
        raise BadConfiguration(f"{SECTION} {name}: {len(numbers)} numbers for {channels} channels: give one for each")
    if name == "std" and not numbers.all():
        raise BadConfiguration(f"{SECTION} std: nothing can be divided by 0")
    return np.broadcast_to(numbers, (channels, 1))


def _of_processor(processor: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a `preprocessor_config.json`. Raises `BadConfiguration` for steps that are not known here."""
    name = str(processor.get("image_processor_type") or processor.get("feature_extractor_type") or "")
    for end in ("Fast", "ImageProcessor", "FeatureExtractor"):
        name = name.removesuffix(end)
    others = {key for key, value in processor.items() if key.startswith("do_") and value} - _STEPS - _OF_LABELS
    if others or (name and name not in _IS_SHORTER_SIDE) or processor.get("do_resize") is False:
        what = listed(sorted(others)) if others else "its do_resize = false" if name in _IS_SHORTER_SIDE else name
        raise _unknown(f"{what} is no step that is known here")
    try:
        entries = _sizes_of(name, processor)
        entries["resample"] = next(word for word, at in RESAMPLING.items() if at == processor.get("resample", 2))
    except (KeyError, TypeError, ValueError, StopIteration) as error:
        raise _unknown("its size, crop_size or resample is not understood") from error
    if processor.get("do_flip_channel_order"):
        entries["channels"] = "bgr"
    entries["scale"] = processor.get("rescale_factor", 1 / 255) if processor.get("do_rescale", True) else 1.0
    if processor.get("do_normalize", name != "MobileViT" and "image_mean" in processor):
        entries |= {"mean": processor.get("image_mean", 0.0), "std": processor.get("image_std", 1.0)}
    return entries


def _sizes_of(name: str, processor: Mapping[str, Any]) -> dict[str, Any]:
    """The entries `resize` and `crop` of a processor."""
    size, crop = processor["size"], None
    if isinstance(size, int):
        size = {"shortest_edge": size} if _IS_SHORTER_SIDE[name] else {"height": size, "width": size}
    resize = _pair(size) if "height" in size else int(size["shortest_edge"])
    if len(size) != (2 if "height" in size else 1):
        raise ValueError(size)
    if (part := processor.get("crop_pct")) and isinstance(resize, int):
        crop = [resize, resize]
        resize = crop if name == "ConvNext" and resize >= _WARPED_FROM else int(resize / part)
    if processor.get("do_center_crop"):
        crop = _pair(processor["crop_size"])
    return {"resize": resize} if crop is None else {"resize": resize, "crop": crop}


def _pair(size: Any) -> list[int]:
    return [size, size] if isinstance(size, int) else [int(size["height"]), int(size["width"])]


def _unknown(why: str) -> BadConfiguration:
    return BadConfiguration(
        f"preprocessor_config.json: {why}: set the steps in {SECTION} (resize, crop, resample, scale, mean, std), "
        "and the file does not count"
    )
