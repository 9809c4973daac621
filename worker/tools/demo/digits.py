"""The handwritten digits that the demo classifies: images, and requests made of them.

1,797 images of 8 by 8 pixels, shades 0 to 16; `digits.LICENSE.md` says whose they are. Owns the files beside it, and
which images were held out when the classifier learned the others.
"""

from __future__ import annotations

import json
from importlib.resources import as_file, files
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from worker.codecs.examples import EncodedRequest
from worker.codecs.wire_contract import JSON

SIDE = 8
PIXELS = SIDE * SIDE
SHADES = 16
MODEL = Path(__file__).with_name("digits.onnx")

# Every fifth image is held out: no seed to agree upon, and all ten digits are among them.
_HELD_OUT = 5


class Images(NamedTuple):
    """Images and what they show: `pixels` float32 of shape (n, 64) from 0 to 1, `labels` int64 of shape (n,)."""

    pixels: NDArray[np.float32]
    labels: NDArray[np.int64]


def requests(images: Images) -> list[EncodedRequest]:
    """As JSON, a row each."""
    return [EncodedRequest((("content-type", JSON.encode()),), _as_json(row)) for row in images.pixels]


def _as_json(row: NDArray[np.float32]) -> bytes:
    pixels = {"name": "pixels", "datatype": "FP32", "shape": [1, PIXELS], "data": row.round(4).tolist()}
    return json.dumps({"inputs": [pixels]}).encode()


def held_out() -> Images:
    """The images that the classifier has never seen: 360 of them."""
    with as_file(files("worker.tools.demo") / "digits.npz") as path, np.load(path, allow_pickle=False) as stored:
        pixels, labels = stored["pixels"], stored["labels"]
    chosen = np.arange(len(labels)) % _HELD_OUT == 0
    return Images((pixels[chosen] / SHADES).astype(np.float32), labels[chosen].astype(np.int64))
