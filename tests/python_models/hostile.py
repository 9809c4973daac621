"""Doubles its input, and does the worst that a model can do to its process where a row's first element asks for it."""

import ctypes
import os
import time
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

MIB = 2**20


class Model:
    inputs = {"x": ("FP32", [None, 4])}
    outputs = {"y": ("FP32", [None, 4])}

    def predict(self, feeds: Mapping[str, NDArray[np.float32]]) -> Mapping[str, NDArray[np.float32]]:
        for first in feeds["x"][:, 0].tolist():
            do_harm(first)
        return {"y": feeds["x"] * 2}


def do_harm(first: float | None) -> None:  # noqa: C901, PLR0912  # one branch for each harm
    """Harm this process in the way that this element asks for; most elements ask for none."""
    match first:
        case 666:
            ctypes.string_at(0)
        case 667:
            os._exit(3)
        case 668:
            while True:
                ctypes.PyDLL(None).sleep(3600)  # unlike CDLL, it keeps the interpreter meanwhile
        case 669:
            while True:
                time.sleep(3600)
        case 670:
            taken = []
            while True:
                taken.append(b"x" * (64 * MIB))
        case 671:
            raise ValueError(f"{first} is no value that this model takes")
        case 672:
            raise RuntimeError(f"it does not work for {first}")
        case 673:
            deep: tuple[object, ...] = ()
            for _ in range(300_000):
                deep = (deep,)
            hash(deep)  # it recurses in native code, whose stack has an end
        case 674:
            do_harm(first)
