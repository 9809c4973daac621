"""Pictures like a camera's, as JPEG: smooth light, shapes with sharp edges, noise. Equal seeds give equal pictures."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
from PIL import Image, ImageDraw

WIDTH, HEIGHT = 640, 480
QUALITY = 88  # of JPEG: about as a camera's
SHAPES, GRAIN = 12, 6  # shapes in a picture; the deviation of the noise, of 255


def photos(count: int, seed: int = 0, width: int = WIDTH, height: int = HEIGHT) -> Iterator[bytes]:
    """Yields JPEGs."""
    for number in range(count):
        written = io.BytesIO()
        photo(np.random.default_rng((seed, number)), width, height).save(written, "JPEG", quality=QUALITY)
        yield written.getvalue()


def photo(rng: np.random.Generator, width: int = WIDTH, height: int = HEIGHT) -> Image.Image:
    """Makes one picture in RGB."""
    light = rng.integers(0, 256, (5, 7, 3), np.uint8)
    made = Image.fromarray(light).resize((width, height), Image.Resampling.BICUBIC)
    drawing = ImageDraw.Draw(made)
    for _ in range(SHAPES):
        left, top = rng.integers(0, (width, height)).tolist()
        wide, high = rng.integers(8, (width // 3, height // 3)).tolist()
        draw = drawing.ellipse if rng.random() < 0.5 else drawing.rectangle
        draw((left, top, left + wide, top + high), fill=tuple(rng.integers(0, 256, 3).tolist()))
    grain = rng.normal(0, GRAIN, (height, width, 3))
    return Image.fromarray(np.clip(np.asarray(made) + grain, 0, 255).astype(np.uint8))
