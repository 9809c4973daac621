"""The steps to a model's input are found from settings and files, and refused where they are not clear."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from worker.core.failures import BadConfiguration
from worker.core.tensors.specs import TensorSpec
from worker.inference.records.image_processor import entries_of
from worker.inference.records.image_steps import Steps, picture_input, steps_for

PIXELS = TensorSpec("pixels", "UINT8", (3, 224, 224))
FLOATS = TensorSpec("x", "FP32", (3, 224, 224))
LOOSE = TensorSpec("x", "FP32", (None, None, None))
HALF = {"mean": [0.5], "std": [0.5]}


def sizes(steps: Steps) -> Any:
    return steps.resize, steps.crop, steps.size


# The input


def test_the_only_input_that_fits() -> None:
    """An input of three dimensions, of bytes or floats, is the picture's; others are not looked at."""
    others = [
        TensorSpec("ids", "INT64", (None,)),
        TensorSpec("boxes", "FP32", (4,)),
        TensorSpec("m", "INT64", (1, 2, 3)),
    ]

    assert picture_input([*others, FLOATS], None) is FLOATS


def test_an_input_by_its_name() -> None:
    """With several that fit, the settings name one."""
    with pytest.raises(BadConfiguration, match=r"^\[records.image\] input: several could take pictures .*name one$"):
        picture_input([FLOATS, PIXELS], None)

    assert picture_input([FLOATS, PIXELS], "pixels") is PIXELS


@pytest.mark.parametrize("name", [None, "x", "ids"])
def test_no_input_that_fits(name: str | None) -> None:
    """A model without an input for pictures is refused."""
    with pytest.raises(BadConfiguration, match=r"the model takes no pictures as (any input|x|ids) \("):
        picture_input([TensorSpec("ids", "INT64", (None,))], name)


# Sizes


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ({}, ((224, 224), None)),
        ({"resize": [256]}, ((256,), (224, 224))),
        ({"resize": [256], "crop": [224]}, ((256,), (224, 224))),
        ({"resize": [300, 400], "crop": [224]}, ((300, 400), (224, 224))),
        ({"resize": [224, 224]}, ((224, 224), None)),
        ({"crop": [224]}, ((), (224, 224))),
    ],
)
def test_sizes_of_a_fixed_input(entries: dict[str, Any], expected: Any) -> None:
    """A picture comes out in the input's own size: resized to it, or cropped to it."""
    assert sizes(steps_for(PIXELS, entries)) == (*expected, (224, 224))


@pytest.mark.parametrize(
    ("entries", "size"),
    [({"resize": [32]}, (32, 32)), ({"resize": [32, 48]}, (32, 48)), ({"resize": [64], "crop": [32, 48]}, (32, 48))],
)
def test_sizes_of_a_loose_input(entries: dict[str, Any], size: tuple[int, int]) -> None:
    """An input of any size gets pictures of the size that the settings say."""
    assert steps_for(LOOSE, {**entries, **HALF}, "NCHW").size == size


def test_the_shorter_side() -> None:
    """One number is the shorter side, and the other side keeps the proportion, rounded down."""
    steps = steps_for(PIXELS, {"resize": [256]})

    assert steps.resized((480, 641)) == (256, 341)
    assert steps.resized((641, 480)) == (341, 256)
    assert steps.resized((10, 10)) == (256, 256)


@pytest.mark.parametrize(
    ("spec", "entries", "message"),
    [
        (PIXELS, {"resize": [224, 225]}, r"resize: \[224, 225\] is not the height and width of pixels UINT8"),
        (PIXELS, {"resize": [256], "crop": [256]}, r"crop: \[256, 256\] is not the height and width"),
        (TensorSpec("x", "UINT8", (3, None, 32)), {"resize": [64]}, r"crop: \[64, 64\] is not the height and width"),
        (TensorSpec("x", "UINT8", (3, None, 32)), {}, "resize: .* takes pictures of any size: set one"),
    ],
)
def test_sizes_that_do_not_fit(spec: TensorSpec, entries: dict[str, Any], message: str) -> None:
    """Another size than the input's is refused, and so is none for an input of any size."""
    with pytest.raises(BadConfiguration, match=rf"^\[records.image\] {message}"):
        steps_for(spec, entries)


# Channels


@pytest.mark.parametrize(
    ("dims", "entries", "expected"),
    [
        ((3, 8, 8), {}, (0, "RGB", False)),
        ((8, 8, 3), {}, (2, "RGB", False)),
        ((1, 8, 8), {}, (0, "L", False)),
        ((3, 8, 1), {"channels": "gray"}, (2, "L", False)),
        ((3, 8, 3), {"layout": "NHWC"}, (2, "RGB", False)),
        ((None, 8, 3), {"channels": "bgr", "resize": [9, 8]}, (2, "RGB", True)),
        ((None, 8, 8), {"layout": "NCHW"}, (0, "RGB", False)),
        ((None, 8, 8), {"layout": "NCHW", "channels": "gray"}, (0, "L", False)),
    ],
)
def test_channels(dims: tuple[int | None, ...], entries: dict[str, Any], expected: Any) -> None:
    """The channels are where the input has one or three, or where the settings say."""
    steps = steps_for(TensorSpec("x", "UINT8", dims), entries)

    assert (steps.channels_at, steps.mode, steps.is_bgr) == expected


def test_a_layout_that_files_share() -> None:
    """The usual layout counts where the input does not tell its own, and no further."""
    assert steps_for(LOOSE, {"resize": [8, 8], **HALF}, "NCHW").dims == (3, 8, 8)
    assert steps_for(TensorSpec("x", "UINT8", (8, 8, 3)), {}, "NCHW").dims == (8, 8, 3)


@pytest.mark.parametrize(
    ("dims", "entries", "message"),
    [
        ((3, 8, 3), {}, "layout: .* does not tell where its channels are: set NCHW or NHWC"),
        ((None, None, None), {}, "layout: .* does not tell"),
        ((4, 8, 8), {}, "channels: .* takes no pictures of one or three channels"),
        ((3, 8, 8), {"channels": "gray"}, "channels: .* takes no gray pictures"),
        ((3, 8, 8), {"layout": "NHWC"}, "channels: .* takes no pictures of one or three channels as NHWC"),
    ],
)
def test_channels_that_do_not_fit(dims: tuple[int | None, ...], entries: dict[str, Any], message: str) -> None:
    """An input whose channels are not clear, or none, is refused."""
    with pytest.raises(BadConfiguration, match=rf"^\[records.image\] {message}"):
        steps_for(TensorSpec("x", "UINT8", dims), entries)


# Numbers


@pytest.mark.parametrize("entries", [{"scale": 1.0}, {"mean": [0.5]}, {"std": [0.5, 0.5, 0.5]}])
def test_numbers_of_floats(entries: dict[str, Any]) -> None:
    """A value becomes (value x scale - mean) / std, with 1/255, 0 and 1 for what is not set."""
    table = steps_for(FLOATS, entries).table

    scale, mean, std = entries.get("scale", 1 / 255), entries.get("mean", [0])[0], entries.get("std", [1])[0]
    assert table is not None
    assert table.shape == (3, 256)
    assert table[1, 200] == pytest.approx((200 * scale - mean) / std)


@pytest.mark.parametrize(
    ("spec", "entries", "message"),
    [
        (FLOATS, {}, "mean: .* takes numbers, and nothing says which: set scale, mean and std"),
        (FLOATS, {"mean": [0.5, 0.5]}, "mean: 2 numbers for 3 channels: give one for each"),
        (FLOATS, {"std": [0.5, 0.0, 0.5]}, "std: nothing can be divided by 0"),
        (PIXELS, {"std": [0.5]}, "std: .* takes the pixels as they are: leave it out"),
    ],
)
def test_numbers_that_do_not_fit(spec: TensorSpec, entries: dict[str, Any], message: str) -> None:
    """Floats without a rule are refused, and so is a rule for bytes."""
    with pytest.raises(BadConfiguration, match=rf"^\[records.image\] {message}"):
        steps_for(spec, entries)


# The file of a Hugging Face folder


def entries(folder: Path, **processor: Any) -> dict[str, Any]:
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps(processor))
    return entries_of(path)


@pytest.mark.parametrize(
    ("processor", "expected"),
    [
        ({"size": {"height": 32, "width": 48}}, {"resize": [32, 48]}),
        ({"size": {"shortest_edge": 64}, "do_center_crop": True, "crop_size": 56}, {"resize": [64], "crop": [56]}),
        ({"feature_extractor_type": "ViTFeatureExtractor", "size": 32}, {"resize": [32, 32]}),
        ({"feature_extractor_type": "CLIPFeatureExtractor", "size": 32}, {"resize": [32]}),
        ({"image_processor_type": "BitImageProcessorFast", "size": 32}, {"resize": [32]}),
        (
            {"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 224}, "crop_pct": 0.875},
            {"resize": [256], "crop": [224, 224]},
        ),
        (
            {"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 384}, "crop_pct": 0.875},
            {"resize": [384, 384], "crop": [384, 384]},
        ),
        (
            {
                "image_processor_type": "PoolFormerImageProcessor",
                "size": {"shortest_edge": 224},
                "crop_pct": 0.9,
                "do_center_crop": True,
                "crop_size": {"height": 224, "width": 200},
            },
            {"resize": [248], "crop": [224, 200]},
        ),
    ],
)
def test_sizes_of_processors(processor: dict[str, Any], expected: dict[str, Any], tmp_path: Path) -> None:
    """A processor's sizes mean what they mean to its class."""
    found = entries(tmp_path, **processor)

    assert {name: found[name] for name in ("resize", "crop") if name in found} == expected


@pytest.mark.parametrize(
    ("processor", "expected"),
    [
        ({}, {"resample": "bilinear", "scale": 1 / 255}),
        ({"resample": 3, "rescale_factor": 0.5}, {"resample": "bicubic", "scale": 0.5}),
        ({"do_rescale": False}, {"resample": "bilinear", "scale": 1.0}),
        ({"image_mean": [1], "image_std": [2]}, {"resample": "bilinear", "scale": 1 / 255, "mean": [1], "std": [2]}),
        ({"image_mean": [1], "do_normalize": False}, {"resample": "bilinear", "scale": 1 / 255}),
        (
            {"image_processor_type": "MobileViTImageProcessor", "image_mean": [1], "do_flip_channel_order": True},
            {"resample": "bilinear", "scale": 1 / 255, "channels": "bgr"},
        ),
    ],
)
def test_numbers_of_processors(processor: dict[str, Any], expected: dict[str, Any], tmp_path: Path) -> None:
    """A processor rescales and normalises as it says, and rescales by 1/255 if it says nothing."""
    found = entries(tmp_path, size={"height": 8, "width": 8}, **processor)

    assert found == {"resize": [8, 8], **expected}


@pytest.mark.parametrize(
    ("processor", "message"),
    [
        ({"image_processor_type": "EfficientNetImageProcessor"}, "EfficientNet is not known here"),
        ({"do_pad": True, "do_thumbnail": True}, "do_pad, do_thumbnail is not known here"),
        ({"do_resize": False}, "do_resize: false is not known here"),
        ({}, r"it is not understood \(KeyError\('size'\)\)"),
        ({"size": {"shortest_edge": 8, "longest_edge": 9}}, "it is not understood"),
        ({"size": 8}, "it is not understood"),
        ({"size": {"height": 8, "width": 8}, "resample": 17}, "it is not understood"),
    ],
)
def test_processors_that_are_not_known(processor: dict[str, Any], message: str, tmp_path: Path) -> None:
    """A step that is not known is refused, with the settings that replace the file."""
    with pytest.raises(BadConfiguration, match=rf"preprocessor_config.json: {message}.*: set the steps in \[records"):
        entries(tmp_path, **processor)


def test_a_broken_file(tmp_path: Path) -> None:
    """A file that is no JSON, or not there, is refused."""
    broken = tmp_path / "preprocessor_config.json"
    broken.write_text("{")

    for path in (broken, tmp_path / "none.json"):
        with pytest.raises(BadConfiguration, match="it is not understood"):
            entries_of(path)
