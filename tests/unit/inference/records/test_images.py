"""Pictures become the input of a model: the numbers, the formats, and the pictures that are refused."""

from __future__ import annotations

import dataclasses
import struct
import sys
import zlib
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps
from PIL.PngImagePlugin import PngInfo

from tests.models import model, save
from worker.core.failures import BadConfiguration, Code, RunFailure
from worker.core.records import Array
from worker.core.tensors.specs import TensorSpec
from worker.inference.model_loading import load
from worker.inference.records.image_headers import MOST_SCANS, MOST_SEGMENTS, MOST_STRAY_BYTES, claimed_size
from worker.inference.records.images import BYTES_OF_A_PIXEL, Images, images_of
from worker.inference.records.making import record_model
from worker.inference.records.parts import Prepared
from worker.settings import BatchingSettings, ModelSettings, RecordsSettings

PIXELS = TensorSpec("pixels", "UINT8", (3, 8, 8))
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_RANDOM = np.random.default_rng(37)


def picture(height: int = 24, width: int = 32, mode: str = "RGB") -> Image.Image:
    """A picture of soft spots."""
    spots = _RANDOM.integers(0, 256, (max(height // 8, 1), max(width // 8, 1), 3), np.uint8)
    return Image.fromarray(spots).resize((width, height), Image.Resampling.BICUBIC).convert(mode)


def encoded(of: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = BytesIO()
    of.save(file, kind, **options)
    return file.getvalue()


def images(spec: TensorSpec = PIXELS, *, threads: int = 1, **entries: Any) -> Images:
    return images_of([spec], {"field": "photo", **entries}, None, threads)


def prepared(by: Images, *values: bytes) -> Prepared:
    feed = np.empty(len(values), object)
    feed[:] = values
    return by.prepare({"image": feed})


def row(by: Images, value: bytes) -> Array:
    """The numbers of one picture, which is taken."""
    made = prepared(by, value)
    assert made.faults == {}
    [column] = made.columns.values()
    first: Array = column.rows[0]
    return first


def fault(value: bytes, by: Images | None = None) -> str:
    """The message for a picture that is wrong."""
    [(at, found)] = prepared(by or images(), value).faults.items()
    assert (at, found.code) == (0, Code.INVALID_ARGUMENT)
    return found.message


def pixels_of(value: bytes) -> Array:
    """The pixels as Pillow reads them, channels first."""
    return np.asarray(Image.open(BytesIO(value)).convert("RGB")).transpose(2, 0, 1)


def by_hand(of: Image.Image) -> Array:
    """Shorter side to 28, centre of 20 x 24, normalised: a usual loop's preparation, of shape (3, 20, 24)."""
    width, height = of.size
    size = (28, int(28 * height / width)) if width <= height else (int(28 * width / height), 28)
    resized = np.asarray(of.convert("RGB").resize(size, Image.Resampling.BICUBIC))
    top, left = (resized.shape[0] - 20) // 2, (resized.shape[1] - 24) // 2
    numbers = resized[top : top + 20, left : left + 24].astype("f4") / np.float32(255)
    normalised: Array = (numbers - np.array(MEAN, "f4")) / np.array(STD, "f4")
    return normalised.transpose(2, 0, 1)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("size", [(40, 60), (61, 33), (28, 28), (25, 90)])
def test_numbers_equal_a_preparation_by_hand(size: tuple[int, int], threads: int) -> None:
    """Resized, cropped and normalised pictures have the numbers of a loop with Pillow and numpy."""
    spec = TensorSpec("x", "FP32", (3, 20, 24))
    by = images(spec, threads=threads, resize=[28], crop=[20, 24], resample="bicubic", mean=MEAN, std=STD)
    values = [encoded(picture(*size), kind) for kind in ("JPEG", "PNG", "WEBP", "JPEG", "JPEG")]

    made = prepared(by, *values)

    assert made.faults == {}
    expected = np.stack([by_hand(Image.open(BytesIO(value))) for value in values])
    np.testing.assert_array_equal(made.columns["x"].rows, expected)


def test_served_and_made_inputs() -> None:
    """Records feed `image`, one picture a row, in the place of the model's input."""
    by = images()

    assert [str(spec) for spec in by.takes] == ["image BYTES[batch]"]
    assert by.makes == ("pixels",)


def test_layouts_and_datatypes_hold_equal_pixels() -> None:
    """A picture has equal pixels in NCHW and NHWC, in bytes and in floats."""
    value = encoded(picture(8, 8))
    pixels = pixels_of(value)

    np.testing.assert_array_equal(row(images(), value), pixels)
    np.testing.assert_array_equal(row(images(TensorSpec("x", "UINT8", (8, 8, 3))), value), pixels.transpose(1, 2, 0))
    for datatype in ("FP16", "FP32", "FP64"):
        spec = TensorSpec("x", datatype, (8, 8, 3))
        floats = row(images(spec, scale=1.0), value)
        np.testing.assert_array_equal(floats, pixels.transpose(1, 2, 0))
        assert floats.dtype == spec.dtype


def test_channels_in_another_order() -> None:
    """`bgr` turns the channels round, and `mean` has the order that the model takes."""
    value = encoded(picture(8, 8))

    floats = row(images(TensorSpec("x", "FP32", (3, 8, 8)), channels="bgr", scale=1.0, mean=[1.0, 2.0, 3.0]), value)

    np.testing.assert_array_equal(floats, pixels_of(value)[::-1] - np.array([[[1]], [[2]], [[3]]], "f4"))


@pytest.mark.parametrize("dims", [(1, 8, 8), (8, 8, 1)])
def test_gray(dims: tuple[int, ...]) -> None:
    """An input of one channel gets the picture's brightness."""
    value = encoded(picture(8, 8))

    pixels = row(images(TensorSpec("x", "UINT8", dims)), value)

    np.testing.assert_array_equal(pixels.squeeze(), np.asarray(Image.open(BytesIO(value)).convert("L")))


def test_a_crop_larger_than_the_picture() -> None:
    """A picture that is smaller than its crop lies in the middle of a black one."""
    value = encoded(Image.new("RGB", (4, 2), "white"))

    pixels = row(images(resize=[2, 4], crop=[8]), value)[0]

    assert pixels.sum() == 8 * 255
    assert (pixels[3:5, 2:6] == 255).all()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation(kind: str, orientation: int) -> None:
    """A picture is turned upright by its EXIF orientation, in each of the formats."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    value = encoded(picture(8, 8), kind, exif=exif)

    upright = ImageOps.exif_transpose(Image.open(BytesIO(value)))

    np.testing.assert_array_equal(row(images(), value), np.asarray(upright).transpose(2, 0, 1))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize(
    "exif", [b"Exif\0\0MM\0*\0\0\0\x08\xff\xff", b"Exif\0\0none", b"Exif\0\0II*\0\xff\xff\xff\xff"]
)
def test_broken_exif(kind: str, exif: bytes) -> None:
    """A picture with broken EXIF is taken as it lies."""
    value = encoded(picture(8, 8), kind, exif=exif)

    np.testing.assert_array_equal(row(images(), value), pixels_of(value))


def test_transparency() -> None:
    """A transparent picture lies on white, whatever its form."""
    clear = Image.new("RGBA", (8, 8), (200, 10, 10, 0))
    palette = Image.new("RGB", (8, 8), "red").quantize(2)
    values = [
        encoded(clear),
        encoded(clear, "WEBP", lossless=True, exact=True),
        encoded(clear.convert("LA")),
        encoded(palette, transparency=0),
        encoded(palette, transparency=bytes([0, 255])),
        encoded(Image.new("RGB", (8, 8), (1, 2, 3)), transparency=(1, 2, 3)),
        encoded(Image.new("L", (8, 8), 7), transparency=7),
    ]
    half = encoded(Image.new("RGBA", (8, 8), (0, 0, 0, 51)))

    for value in values:
        assert (row(images(), value) == 255).all()
    assert (row(images(), half) == 204).all()


def test_sixteen_bits() -> None:
    """The upper 8 bits of 16 count."""
    deep = _RANDOM.integers(0, 65536, (8, 8), np.uint16)

    pixels = row(images(), encoded(Image.fromarray(deep)))

    np.testing.assert_array_equal(pixels, np.stack([deep >> 8] * 3))


@pytest.mark.parametrize(
    ("kind", "mode", "options"),
    [
        ("JPEG", "L", {}),
        ("JPEG", "CMYK", {}),
        ("JPEG", "RGB", {"progressive": True}),
        ("PNG", "1", {}),
        ("PNG", "P", {}),
        ("WEBP", "RGB", {"lossless": True}),
        ("MPO", "RGB", {"save_all": True, "append_images": [Image.new("RGB", (8, 8))]}),
    ],
)
def test_other_forms(kind: str, mode: str, options: dict[str, Any]) -> None:
    """Gray, CMYK, progressive, palette, two-colour and stereo pictures are taken as Pillow converts them."""
    value = encoded(picture(8, 8, mode), kind, **options)

    np.testing.assert_array_equal(row(images(), value), pixels_of(value))


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_animations(kind: str) -> None:
    """An animation is its first frame."""
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "lime", "blue")]
    value = encoded(frames[0], kind, save_all=True, append_images=frames[1:], lossless=True)

    assert (row(images(), value)[:, 0, 0] == [255, 0, 0]).all()


def test_neighbours_of_a_wrong_picture() -> None:
    """A wrong picture is the fault of its row alone."""
    good = encoded(picture(8, 8))

    made = prepared(images(threads=2), good, b"no picture", good)

    assert list(made.faults) == [1]
    np.testing.assert_array_equal(made.columns["pixels"].rows[0], pixels_of(good))
    np.testing.assert_array_equal(made.columns["pixels"].rows[1], pixels_of(good))


def test_the_largest_pictures_of_a_batch_are_left_for_later() -> None:
    """Small ones are made first. One is made, however large; what makes a picture large is counted, too."""
    small, large, narrow = encoded(picture(8, 8)), encoded(picture(90, 100)), encoded(picture(1, 20))
    steps = images()._steps
    by = Images(PIXELS, dataclasses.replace(steps, resize=(20,), crop=(8, 8)), "photo", 1, at_once=9_000)

    assert prepared(by, large, small, b"", small).left == {0}
    made = prepared(by, large)
    assert (made.left, made.faults, len(made.columns["pixels"].rows)) == (set(), {}, 1)
    assert prepared(by, narrow, large, narrow).left == {1, 2}
    assert prepared(images(), large, large).left == ()


def test_bytes_between_the_segments_of_a_jpeg() -> None:
    """A few are passed over, as other readers do."""
    value, stray = encoded(picture(8, 8), "JPEG", quality=100), b"\0" * (MOST_STRAY_BYTES // 2)
    first, rest = value[:20], value[20:]

    np.testing.assert_array_equal(row(images(), first + stray + rest), pixels_of(value))
    assert fault(first + 3 * stray + rest).endswith("the JPEG is damaged: its segments do not follow one another")
    assert "do not follow" in fault(first + 3 * stray)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("options", [{}, {"lossless": True}, {"exif": b"Exif\0\0MM\0*\0\0\0\x08\0\0\0\0\0\0"}])
def test_headers_tell_the_size(kind: str, options: dict[str, Any]) -> None:
    """Before a library reads them."""
    assert claimed_size(encoded(picture(40, 50), kind, **options)) == (40, 50)
    assert claimed_size(encoded(picture(40, 50), kind, **options)[:13]) == (0, 0) or kind == "WEBP"
    assert claimed_size(b"\xff\xd8" + b"\xff\xff\xff\xda" * 300) == (0, 0)


# Wrong pictures


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (b"", ""),
        (b"\0" * 100, ""),
        (b"RIFF\0\0\0\0WAVEfmt ", ""),
        (b"GIF89a" + b"\0" * 20, ", got a GIF"),
        (b"%PDF-1.7", ", got a PDF"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", ", got XML, perhaps an SVG"),
        (b"BM" + b"\0" * 60, ", got a BMP"),
        (b"II*\0" + b"\0" * 60, ", got a TIFF"),
        (b"\0\0\0\x1cftypavif", ", got HEIF or AVIF"),
        (b"/9j/4AAQSkZJRg==", ", got base64: send the bytes"),
        (b"data:image/png;base64,iVBORw0", ", got a data URL: send the bytes"),
    ],
)
def test_other_formats(value: bytes, found: str) -> None:
    """Other formats than JPEG, PNG and WebP are refused, by name where they are known."""
    assert fault(value) == f"photo: expected a picture, JPEG, PNG or WebP{found}"


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_parts_of_a_picture(kind: str) -> None:
    """A picture that was cut short is refused, wherever it ends."""
    value = encoded(picture(40, 40), kind)

    for end in (4, 13, 20, 40, len(value) // 2, len(value) - 40):
        assert fault(value[:end])
    assert "cannot be decoded" in fault(value[: len(value) // 2])


def chunk(name: bytes, content: bytes) -> bytes:
    """A chunk of a PNG."""
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def png(width: int, height: int, *chunks: bytes) -> bytes:
    """A PNG with chunks before its pixels, which are too few."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(b"\0" * 100))
    return b"".join([b"\x89PNG\r\n\x1a\n", header, *chunks, pixels, chunk(b"IEND", b"")])


def jpeg(width: int, height: int) -> bytes:
    """A JPEG whose header claims this size."""
    value = encoded(picture(8, 8), "JPEG", progressive=True)
    at = value.index(b"\xff\xc2") + 5
    return value[:at] + struct.pack(">HH", height, width) + value[at + 4 :]


def webp(claim: Callable[[bytearray], None], **options: Any) -> bytes:
    """A WebP whose header was written over."""
    value = bytearray(encoded(picture(8, 8), "WEBP", **options))
    claim(value)
    return bytes(value)


def _claim_canvas(value: bytearray) -> None:
    assert value[12:16] == b"VP8X"
    value[24:30] = (16_382).to_bytes(3, "little") * 2


def _claim_lossless(value: bytearray) -> None:
    assert value[12:16] == b"VP8L"
    value[21:25] = (16_382 | (16_382 << 14)).to_bytes(4, "little")


def _claim_lossy(value: bytearray) -> None:
    assert value[12:16] == b"VP8 "
    value[26:30] = (16_383).to_bytes(2, "little") * 2


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(png(60_000, 60_000), id="PNG"),
        pytest.param(png(5001, 5000), id="a little too large"),
        pytest.param(jpeg(60_000, 60_000), id="JPEG"),
        pytest.param(webp(_claim_canvas, exif=b"Exif\0\0none"), id="WebP"),
        pytest.param(webp(_claim_lossless, lossless=True), id="lossless WebP"),
        pytest.param(webp(_claim_lossy), id="lossy WebP"),
    ],
)
def test_bombs(value: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A header that claims more pixels than are taken is refused before anything is decoded."""

    def decode(*_: object) -> None:
        raise AssertionError("it was decoded")

    monkeypatch.setattr("PIL._webp.WebPAnimDecoder", decode)
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", decode)

    assert fault(value) == "photo: the picture has more than 25000000 pixels"


def test_sizes_in_headers() -> None:
    """A WebP of each kind is held against the limit by its true size."""
    by = images(max_pixels=71)

    for options in ({}, {"lossless": True}, {"exif": b"Exif\0\0none"}):
        value = encoded(picture(8, 9), "WEBP", **options)
        assert fault(value, by) == "photo: the picture has more than 71 pixels"
        assert row(images(max_pixels=72), value).shape == (3, 8, 8)


def test_narrow_pictures() -> None:
    """A picture of one row of pixels is not made larger than the limit by its shorter side."""
    value = encoded(Image.new("RGB", (500, 1)))

    found = fault(value, images(resize=[8], max_pixels=1000))

    assert found == "photo: the picture has 500 x 1 pixels, and is too narrow to be resized"


def test_floods_of_segments() -> None:
    """A file of very many small pieces is refused, because these are parsed one by one."""
    value = encoded(picture(8, 8), "JPEG")
    start, rest, comment, junk = value[:20], value[20:], b"\xff\xfe\x00\x02", b"\0\xff\xd0"
    texts = [chunk(b"tEXt", b"a\0b")] * (MOST_SEGMENTS + 1)

    for flood, kind in (
        (start + comment * MOST_SEGMENTS + rest, "JPEG"),
        (start + junk * MOST_SEGMENTS + rest, "JPEG"),
        (png(8, 8, *texts), "PNG"),
    ):
        assert fault(flood) == f"photo: the {kind} has more than {MOST_SEGMENTS} segments besides its pixels"
    np.testing.assert_array_equal(row(images(), start + comment * 100 + rest), pixels_of(value))


def test_floods_of_scans() -> None:
    """A progressive JPEG of very many scans is refused, because each passes over all pixels."""
    value = encoded(picture(64, 64), "JPEG", progressive=True)
    last = value[value.rindex(b"\xff\xda") : -2]

    flood = value[:-2] + last * MOST_SCANS + value[-2:]

    assert fault(flood) == f"photo: the JPEG has more than {MOST_SCANS} scans"


@pytest.mark.parametrize("name", [b"iCCP", b"zTXt"])
def test_bombs_beside_the_pixels(name: bytes) -> None:
    """A compressed text or profile of 100 MB is not unpacked."""
    packed = zlib.compress(b"\0" * 100_000_000)

    assert fault(png(8, 8, chunk(name, b"a\0\0" + packed))) == "photo: the picture is damaged and cannot be decoded"


def test_texts_beside_the_pixels() -> None:
    """Texts and unknown chunks of a PNG do not matter."""
    info = PngInfo()
    info.add_text("a", "b", zip=True)
    info.add(b"prVt", b"x")
    value = encoded(picture(8, 8), pnginfo=info)

    np.testing.assert_array_equal(row(images(), value), pixels_of(value))


def test_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture that memory has no room for is answered, and its neighbours are made."""
    large, small = encoded(picture(16, 16)), encoded(picture(8, 8))

    def resize(*_: object) -> Image.Image:
        raise MemoryError

    monkeypatch.setattr("PIL.Image.Image.resize", resize)

    made = prepared(images(), small, large)

    assert {at: found.code for at, found in made.faults.items()} == {1: Code.RESOURCE_EXHAUSTED}
    np.testing.assert_array_equal(made.columns["pixels"].rows[0], pixels_of(small))


@pytest.mark.parametrize("kind", ["JPEG", "WEBP"])
def test_no_memory_in_a_library(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that fails where memory has no room for the pixels is no sign of a damaged picture."""
    value, empty = encoded(picture(40, 50), kind)[:-60], np.empty

    def with_little_memory(size: Any, datatype: Any) -> Array:
        if size == 40 * 50 * BYTES_OF_A_PIXEL:
            raise MemoryError
        return empty(size, datatype)

    monkeypatch.setattr("worker.inference.records.images.np.empty", with_little_memory)

    [fault] = prepared(images(), value).faults.values()

    assert fault.code is Code.RESOURCE_EXHAUSTED


def test_pillow_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Pillow a start is refused with the extra's name."""
    monkeypatch.setitem(sys.modules, "PIL", None)

    with pytest.raises(BadConfiguration, match=r"inference-worker\[images\]"):
        images()


# A folder of Hugging Face


def _processor(folder: Path) -> Path:
    path = folder / "preprocessor_config.json"
    path.write_text(
        '{"image_processor_type": "ViTImageProcessor", "size": {"height": 8, "width": 8}, "resample": 2, '
        '"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}'
    )
    return path


def _made(spec: TensorSpec, processor: Path, value: bytes, **entries: Any) -> Array:
    inputs: Sequence[TensorSpec] = [TensorSpec("input_ids", "INT64", (None,)), spec]
    return row(images_of(inputs, {"field": ("$value",), **entries}, processor, 0), value)


def test_the_file_of_a_folder(tmp_path: Path) -> None:
    """A `preprocessor_config.json` is enough for an input of any size."""
    value = encoded(picture(8, 8))

    made = _made(TensorSpec("x", "FP32", (None, None, None)), _processor(tmp_path), value)

    np.testing.assert_allclose(made, pixels_of(value) / 127.5 - 1, atol=1e-6)


def test_own_steps_replace_the_file(tmp_path: Path) -> None:
    """With a step in the settings the file does not count, and a model that takes bytes needs no numbers of it."""
    value, path = encoded(picture(8, 8)), _processor(tmp_path)

    np.testing.assert_array_equal(_made(TensorSpec("x", "FP32", (3, 8, 8)), path, value, scale=1.0), pixels_of(value))
    np.testing.assert_array_equal(_made(PIXELS, path, value), pixels_of(value))


# In a model of records


def test_a_model_of_pictures(tmp_path: Path) -> None:
    """A model is served pictures; a wrong one is named by its row, and the others can run again."""
    path = save(
        model("float[batch, 3, 8, 8] x => float[batch, 3] y", "y = ReduceMean<axes=[2, 3], keepdims=0>(x)"), tmp_path
    )
    settings, batching = ModelSettings(path=path, device="cpu"), BatchingSettings(max_batch_size=4)
    records: Any = RecordsSettings(image={"field": "$value", "scale": 1})
    plain: Any = SimpleNamespace(**records.model_dump())
    served = record_model(load(settings, max_batch_size=4), settings, batching, plain, {})
    red, lime = (encoded(Image.new("RGB", (8, 8), colour)) for colour in ("red", "lime"))

    outputs = served.run({"image": np.array([red, lime], object)})
    failure = served.run({"image": np.array([red, b"%PDF", lime], object)})

    assert [str(spec) for spec in served.signature.inputs] == ["image BYTES[batch]"]
    assert not isinstance(outputs, RunFailure)
    np.testing.assert_array_equal(outputs[0], [[255, 0, 0], [0, 255, 0]])
    assert isinstance(failure, RunFailure)
    assert {at: fault.code for at, fault in failure.faults.items()} == {1: Code.INVALID_ARGUMENT}
