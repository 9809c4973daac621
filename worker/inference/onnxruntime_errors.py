"""Translates ONNX Runtime's exceptions: what the failure of a run or a load means, in one short line.

Its messages come from native code: they hold C++ signatures, source files, host names, ANSI colours, and sometimes a
piece of the request. The line that leaves here names the node and the complaint.
"""

from __future__ import annotations

import re

from worker.core.failures import Code, DeviceLost, RowsLost, RunFailure
from worker.inference.session import RunFailed

LONGEST_MESSAGE = 200  # a line in an answer; ONNX Runtime's can run to kilobytes of C++ signatures
# Characters of an error's text that are read. An operator's function may quote a record in it, and the search for noise
# takes time by the square of a word's length: 20,000 characters took 1.3 s, 3 million more than 8 minutes (2026-11).
MOST_READ = 4096

# After these errors the CUDA context is dead: every later call fails until the process starts anew (CUDA driver API,
# CUresult: "the process must be terminated and relaunched"), or the device itself is gone.
_DEAD_CONTEXT = {214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911, 999}

_CUDA_CODE = re.compile(r"CUDA (?:failure|error) (\d+)")
# A failure of CUDA or its libraries: `CUDA failure 35: why ; GPU=0 ; hostname=… `, somewhere among C++ signatures.
_DEVICE_FAILURE = re.compile(r"\b[A-Z_]+ failure \d+: [^;]*")
# The third text is the arena's, at its own limit (GPU_MEM_LIMIT); the last one is from CUDA's libraries.
_NO_MEMORY = re.compile(
    r"out of memory|failed to allocate memory|is smaller than requested bytes|bad_alloc|ALLOC(?:ATION)?_FAILED",
    re.IGNORECASE,
)
# Operators' complaints about a value of the input: an unknown category, an index outside of a table, a zero to divide
# by, a text that is no number (`Cast: stod`). The warm-up ran without these, so the value is at fault.
_BAD_VALUE = re.compile(
    r"Unknown Category|out of data bounds|invalid ind(?:ex|ice) found|Out of range value in index|"
    r"Integer (?:division|modulo) by zero|\bsto(?:d|f|i|l|ll|ul|ull)\b"
)
_NODE = re.compile(r"while running (\S+) node\. Name:'([^']*)' Status Message: ")
# Colours, the runtime's words before a complaint, its source files with their C++ signatures.
_NOISE = re.compile(
    r"\x1b\[[0-9;]*m|^.*?Status Message: |\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : |Load model from .*? failed:|"
    r"\S+\.(?:cc|h|cpp|cu|cuh):\d+ (?:[^()\n]*\([^()]*\)\s*)?",
    re.DOTALL,
)
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?\b")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


def run_failure(error: Exception) -> RunFailure:
    """The failure of one run. Raises `DeviceLost` when no later run of this process can succeed."""
    if isinstance(error, RunFailed):
        return error.failure
    text = str(error)[:MOST_READ]
    code = _CUDA_CODE.search(text)
    if (code and int(code[1]) in _DEAD_CONTEXT) or type(error).__name__ == "DeviceReset":
        raise DeviceLost(readable(error)) from error
    if is_out_of_memory(error):
        return RunFailure(f"the device has not enough memory: {readable(error)}", Code.RESOURCE_EXHAUSTED)
    # A quotation may be a piece of a request, and this text reaches logs and the answers to other publishers. A number
    # may be one too, but helps to find the value (`idx=9999 must be within the range [-10,9]`): answered, not logged.
    complaint, node = _QUOTED.sub("'…'", _complaint(text) or type(error).__name__), _node(text)
    is_of_device = code is not None or _DEVICE_FAILURE.search(text) is not None
    logged = _shortened(complaint if is_of_device else _NUMBER.sub("…", complaint), node)
    if not is_of_device and _BAD_VALUE.search(complaint):
        return RunFailure(_shortened(complaint, node), Code.INVALID_ARGUMENT, logged=logged)
    return RunFailure(_shortened(complaint, node), logged=logged, loses_rows=isinstance(error, RowsLost))


def load_failure(error: Exception) -> str:
    """The reason why a model cannot be loaded, with the cure where there is one."""
    if is_out_of_memory(error):
        return f"there is not enough memory for it ({readable(error)}): give it more, or export a smaller model (FP16)"
    is_whole = "protobuf" not in str(error).lower()
    hint = "" if is_whole else " It is no ONNX model, or one that was cut short, or a Git LFS pointer (`git lfs pull`)"
    if "is not a registered function/op" in str(error):
        hint = "; WORKER_MODEL__CUSTOM_OPS names the library that has it"
    return f"{readable(error, longest=1000)}{hint} (docs/models.md)"  # it may name two files


def is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or bool(_NO_MEMORY.search(str(error)))


def readable(error: BaseException, longest: int = LONGEST_MESSAGE) -> str:
    """One short line of the exception's own text."""
    text = str(error)[:MOST_READ]
    return _shortened(_complaint(text) or type(error).__name__, _node(text), longest)


def _shortened(text: str, subject: str, longest: int = LONGEST_MESSAGE) -> str:
    """`subject: text` on one line."""
    line = " ".join(f"{subject}: {text}".split()) if subject else " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def _complaint(text: str) -> str:
    failure = _DEVICE_FAILURE.search(text)
    return failure[0].strip() if failure else _NOISE.sub("", text).strip()


def _node(text: str) -> str:
    """The node of the graph that complained, as `Gather 'name'`; empty when none did."""
    found = _NODE.search(text)
    return f"{found[1]} {found[2]!r}".removesuffix(" ''") if found else ""
