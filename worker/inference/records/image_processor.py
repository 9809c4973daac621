"""Reads a `preprocessor_config.json`: the steps of a Hugging Face image processor, as entries of `[records.image]`.

The processors known here give equal numbers, to the last bit, where they use Pillow (transformers 5.24, 2026-11-27).
The `Fast` ones use torchvision, whose resizing differs a little. A step that is not known here is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from worker.core.failures import BadConfiguration, listed
from worker.inference.records.image_steps import RESAMPLING, SCALE, SECTION

LAYOUT = "NCHW"  # of all of them

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
_CURE = f"set the steps in {SECTION} (resize, crop, resample, scale, mean, std), and the file does not count"


def entries_of(path: Path) -> dict[str, Any]:
    """The entries of this file. Raises `BadConfiguration`."""
    try:
        processor = json.loads(path.read_bytes())
        return _entries(processor)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadConfiguration(f"{path}: it is not understood ({error!r}): {_CURE}") from error
    except _Unknown as unknown:
        raise BadConfiguration(f"{path}: {unknown} is not known here: {_CURE}") from unknown


class _Unknown(Exception):
    """A processor has steps of its own. The message names them."""


def _entries(processor: Mapping[str, Any]) -> dict[str, Any]:
    name = str(processor.get("image_processor_type") or processor.get("feature_extractor_type") or "")
    for end in ("Fast", "ImageProcessor", "FeatureExtractor"):
        name = name.removesuffix(end)
    if others := {key for key, value in processor.items() if key.startswith("do_") and value} - _STEPS - _OF_LABELS:
        raise _Unknown(listed(sorted(others)))
    if name and name not in _IS_SHORTER_SIDE:
        raise _Unknown(name)
    if not processor.get("do_resize", True):
        raise _Unknown("do_resize: false")
    entries = _sizes(name, processor)
    entries["resample"] = {number: word for word, number in RESAMPLING.items()}[processor.get("resample", 2)]
    if processor.get("do_flip_channel_order"):
        entries["channels"] = "bgr"
    entries["scale"] = processor.get("rescale_factor", SCALE) if processor.get("do_rescale", True) else 1.0
    if processor.get("do_normalize", name != "MobileViT" and "image_mean" in processor):
        entries |= {"mean": processor.get("image_mean", 0.0), "std": processor.get("image_std", 1.0)}
    return entries


def _sizes(name: str, processor: Mapping[str, Any]) -> dict[str, Any]:
    """The entries `resize` and `crop` of a processor."""
    resize = _sides(processor["size"])
    if isinstance(processor["size"], int) and not _IS_SHORTER_SIDE[name]:
        resize *= 2
    crop = _sides(processor["crop_size"]) if processor.get("do_center_crop") else None
    if (part := processor.get("crop_pct")) and len(resize) == 1:
        crop = crop or [*resize, *resize]
        resize = crop if name == "ConvNext" and resize[0] >= _WARPED_FROM else [int(resize[0] / part)]
    return {"resize": resize} if crop is None else {"resize": resize, "crop": crop}


def _sides(size: Any) -> list[int]:
    """One number, or height and width. Raises for other names, such as `longest_edge`."""
    match size:
        case int():
            return [size]
        case {"shortest_edge": side, **rest} if not rest:
            return [int(side)]
        case {"height": height, "width": width, **rest} if not rest:
            return [int(height), int(width)]
    raise ValueError(size)
