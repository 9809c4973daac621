"""Libraries of operators that ONNX Runtime has not: the operator's own choice, each by its path and its digest.

They run inside the model's process, with its rights. Nothing of a request or a model's file names one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import onnxruntime as ort

from worker.core.failures import BadConfiguration
from worker.inference.onnxruntime_errors import readable
from worker.inference.session import RUN_ERRORS

_SETTING = "WORKER_MODEL__CUSTOM_OPS"


def libraries(entries: Iterable[str]) -> tuple[str, ...]:
    """The absolute paths of these libraries, `path@sha256`, which can be loaded. Raises `BadConfiguration`.

    A path without a folder would be sought where the system's libraries are, past the file that was checked.
    """
    return tuple(map(_library, entries))


def _library(entry: str) -> str:
    path, _, sha256 = entry.rpartition("@")
    try:
        with Path(path).open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise BadConfiguration(f"{_SETTING}: {path} cannot be read: {error.strerror}; name a file") from error
    if found != sha256.lower():
        raise BadConfiguration(
            f"{_SETTING}: {path} has {found}, not {sha256.lower()}: it is another library than the one named; name it "
            "with that digest if it is meant"
        )
    whole = str(Path(path).absolute())
    try:
        ort.SessionOptions().register_custom_ops_library(whole)
    except RUN_ERRORS as error:
        raise BadConfiguration(
            f"{_SETTING}: {path} cannot be loaded: {readable(error)}; build it for this system and ONNX Runtime "
            f"{ort.__version__}, with a function RegisterCustomOps"
        ) from error
    return whole
