"""What ONNX Runtime writes to standard error while a provider loads: its only word on why a device cannot be used.

Owns nothing. Standard error is the whole process's, so this is for the start, before other threads write.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from typing import BinaryIO

import onnxruntime as ort

from worker.inference.onnxruntime_errors import shortened

# ONNX Runtime's levels of logging.
WARNING, FATAL = 2, 4

_MISSING_LIBRARY = re.compile(r"(lib\S+\.so[.\d]*|\S+\.dll)\S*: cannot open shared object file|error 126 \"[^\"]*\"")
_NEEDS = re.compile(r"Require (cuDNN \S+) and (CUDA \S+?)\.? ")


@contextlib.contextmanager
def held_back(text: io.StringIO) -> Iterator[None]:
    """Holds back what native code writes to standard error, and Python to standard output; `text` has it after.

    From then on ONNX Runtime's own logger is silent: on CUDA it writes of each failed run, past our log.
    """
    sys.stderr.flush()
    ort.set_default_logger_severity(WARNING)
    with _scratch() as scratch, contextlib.redirect_stdout(text):
        kept = os.dup(2)
        os.dup2(scratch.fileno(), 2)
        try:
            yield
        finally:
            ort.set_default_logger_severity(FATAL)
            os.dup2(kept, 2)
            os.close(kept)
            scratch.seek(0)
            text.write(scratch.read().decode(errors="replace"))


def _scratch() -> BinaryIO:
    # A container's file system may be read-only, and a pipe would block when full.
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("onnxruntime"), "w+b")
    return tempfile.TemporaryFile()


def lacks_library(complaints: str) -> bool:
    """Whether a library is missing, whatever else is said."""
    return _MISSING_LIBRARY.search(complaints) is not None


def cause_in(complaints: str) -> str:
    """The cause in what ONNX Runtime wrote while a provider failed to load."""
    library = _MISSING_LIBRARY.search(complaints)
    needs = _NEEDS.search(complaints)
    cause = f"{library[1]} is not installed" if library and library[1] else _last_error(complaints)
    return f"{cause} (it needs {needs[2]} and {needs[1]})" if needs else cause


def _last_error(complaints: str) -> str:
    for line in complaints.splitlines():
        _, marker, complaint = line.rpartition("[ONNXRuntimeError] :")
        if marker:
            return shortened(complaint)
    return shortened(complaints) or "ONNX Runtime does not say why"
