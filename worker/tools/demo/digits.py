"""The handwritten digits that the demo classifies: images, and requests made of them.

There are 1,797 images of 8 by 8 pixels, in shades 0 to 16. `digits.LICENSE.md` names their source.
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

PIXELS = 8 * 8
SHADES = 16
MODEL = Path(__file__).with_name("digits.onnx")


class Images(NamedTuple):
    """Images and their digits: `pixels` float32 of shape (n, 64) from 0 to 1, `labels` int64 of shape (n,)."""

    pixels: NDArray[np.float32]
    labels: NDArray[np.int64]


def requests(images: Images) -> list[EncodedRequest]:
    """Makes a JSON request of one row for each image."""
    return [EncodedRequest((("content-type", JSON.encode()),), _as_json(row)) for row in images.pixels]


def _as_json(row: NDArray[np.float32]) -> bytes:
    pixels = {"name": "pixels", "datatype": "FP32", "shape": [1, PIXELS], "data": row.round(4).tolist()}
    return json.dumps({"inputs": [pixels]}).encode()


def held_out() -> Images:
    """Returns every fifth image: the 360 that the classifier has never seen. All ten digits are among them."""
    with as_file(files("worker.tools.demo") / "digits.npz") as path, np.load(path, allow_pickle=False) as stored:
        pixels, labels = stored["pixels"][::5], stored["labels"][::5]
    return Images((pixels / SHADES).astype(np.float32), labels.astype(np.int64))
