"""The model's file: its format, the check against a pin, and the digest by which replicas name it.

ONNX Runtime reads its file by itself. Weights in other files are read here for their digest alone.
"""

from __future__ import annotations

import hashlib
import mmap
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from worker.core.failures import BadConfiguration

# A model is one protobuf message, and protobuf reads none that is larger.
LARGEST_FILE = 2**31 - 1
# Bytes of the largest model that is changed before it is loaded: it takes its size once more meanwhile.
LARGEST_CHANGED = 256 * 1024 * 1024
# A tensor names its data file in an entry of key and value, and every writer of protobuf begins that entry like this.
LOCATION = re.compile(rb"\n\x08location\x12([\x00-\x7f]|[\x80-\xff][\x00-\x7f])", re.DOTALL)


class LoadableModel(NamedTuple):
    """A model as its session gets it: the path, or the bytes that were compared with a pin. Of Python it is the bytes.

    To load a model of 1.4 GB takes 3.0 GB at the peak from its path, and 4.4 GB from bytes (2026-11-26).
    """

    model: str | bytes
    is_ort: bool  # ONNX Runtime's own format, which it would recognise only by the file's name
    is_python: bool = False
    custom_ops: tuple[str, ...] = ()  # the paths of the libraries with its operators


def loadable_model(path: Path, sha256: str | None) -> LoadableModel:
    """Find the model's format. Raises `BadConfiguration` for an unreadable file, or another than the pinned one."""
    is_python = path.suffix == ".py"
    # ONNX Runtime opens no name that is not UTF-8.
    may_be_named = sha256 is None and not is_python and str(path).isprintable()
    try:
        with path.open("rb") as file:
            start = file.read(8)
            content = None if may_be_named else start + file.read()
    except OSError as error:
        why = error.strerror or error
        raise BadConfiguration(f"{path}: the model cannot be read: {why}; WORKER_MODEL__PATH names it") from error
    if content is not None and sha256 is not None:
        _check_pin(path, content, sha256)
    return LoadableModel(str(path) if content is None else content, start[4:8] == b"ORTM", is_python)


def small_content(loadable: LoadableModel) -> memoryview | None:
    """The bytes of a model that may be changed before it is loaded; None if it is none. Raises `OSError`."""
    model = loadable.model
    size = len(model) if isinstance(model, bytes) else Path(model).stat().st_size
    if loadable.is_ort or size > LARGEST_CHANGED:
        return None
    if isinstance(model, bytes):
        return memoryview(model)
    with Path(model).open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def digest_of(path: Path) -> str:
    """The model's SHA-256 in hexadecimal; empty if the file cannot be read, which its loading reports.

    Weights in other files count, too: a new training writes them and leaves the graph as it was. A GiB takes 0.7 s of
    CPU, next to other threads (2026-11).
    """
    try:
        if path.stat().st_size > LARGEST_FILE:
            return ""
        own, beside = _digest_and_files(path, *_as_it_is(path))
        parts = [_digest(file, *_as_it_is(file)) for file in beside if file.is_file()]
    except (OSError, MemoryError):
        return ""
    return hashlib.sha256("".join([own, *parts]).encode()).hexdigest() if parts else own


def _check_pin(path: Path, content: bytes, sha256: str) -> None:
    """Raises `BadConfiguration`. ONNX Runtime gets bytes and no folder, and so refuses weights that are missed here."""
    found = hashlib.sha256(content).hexdigest()
    if found != sha256.lower():
        raise BadConfiguration(
            f"WORKER_MODEL__SHA256: {path} has {found}, not {sha256.lower()}: it is another model than the one pinned"
        )
    if any(file.is_file() for file in _files_beside(path, content)):
        raise BadConfiguration(
            f"WORKER_MODEL__SHA256 covers {path} alone, and its weights lie in other files: save it as one file "
            "(onnx.save(onnx.load(path), path)), or unset the pin"
        )


def _as_it_is(file: Path) -> tuple[int, ...]:
    """Numbers that change with the file, to keep its digest: a start needs it twice, before and after all is loaded."""
    found = file.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


@lru_cache(maxsize=1)
def _digest_and_files(path: Path, *_as_it_is: int) -> tuple[str, Sequence[Path]]:
    content = path.read_bytes()
    return hashlib.sha256(content).hexdigest(), sorted(set(_files_beside(path, content)))


@lru_cache(maxsize=1024)  # some exports give each tensor a file
def _digest(path: Path, *_as_it_is: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _files_beside(path: Path, content: bytes) -> Iterator[Path]:
    """The files of weights that the model names. A similar text, as in its metadata, names no file that exists."""
    for found in LOCATION.finditer(content):
        length = found[1][0] & 0x7F | (found[1][1] << 7 if len(found[1]) > 1 else 0)
        name = content[found.end() : found.end() + length].decode(errors="replace")
        if name and "\0" not in name:
            yield path.parent / name
