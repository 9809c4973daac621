"""The model's file: read whole and compared with its SHA-256, or refused with the reason and the cure.

Reads weights that lie beside it for their digest alone: ONNX Runtime finds them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from worker.core.failures import BadConfiguration
from worker.inference.onnx_file.external_data import is_elsewhere, locations


class Changed(NamedTuple):
    """A serialized model that is not as its file is; other files with weights of it lie in that folder."""

    content: bytes
    folder: str


# A serialized model whose file has all of it, or the path of one.
Graph = bytes | str | Changed

# A model is one protobuf message, and protobuf reads none that is larger. ONNX Runtime says `narrowing_error`.
LARGEST_FILE = 2**31 - 1
# What files begin with that hold models of other kinds. No ONNX model begins so.
_OTHER_KINDS = {
    b"PK\x03\x04": "a zip archive, as PyTorch and Keras save models",
    b"\x89HDF": "an HDF5 file, as Keras saved models",
    **{bytes([0x80, protocol]): "a pickle, as scikit-learn's models are saved" for protocol in range(2, 6)},
}


def read(path: Path, sha256: str | None) -> Graph:
    """The model's path, or the bytes that were compared with a pin. Raises `BadConfiguration`.

    From its path a model of 1.4 GB is loaded with 3.0 GB at the peak, and from bytes with 4.4 (2026-11-26).
    """
    try:
        size = path.stat().st_size
        content = path.read_bytes() if size <= LARGEST_FILE else b""
    except IsADirectoryError:
        raise BadConfiguration(f"{path}: a folder; name the ONNX file, such as {path / 'model.onnx'}") from None
    except OSError as error:
        raise BadConfiguration(
            f"{path}: the model cannot be read: {error.strerror or error}; "
            "WORKER_MODEL__PATH or the command line names it"
        ) from error
    except MemoryError:
        raise BadConfiguration(
            f"{path}: the model has {size} bytes, and there is not enough memory to read it: give it more"
        ) from None
    if size > LARGEST_FILE:
        raise BadConfiguration(
            f"{path}: the model has {size} bytes, and an ONNX file can have at most {LARGEST_FILE}: export it anew "
            "with its weights in another file (torch.onnx.export(…, external_data=True), onnx.save(…, "
            "save_as_external_data=True))"
        )
    _check_kind(path, content)
    is_in_parts = is_elsewhere(content)
    if sha256 is not None:
        _check_pin(path, content, sha256)
        if is_in_parts:
            raise BadConfiguration(
                f"WORKER_MODEL__SHA256 covers {path} alone, and its weights lie in other files: save it as one file "
                "(onnx.save(onnx.load(path), path)), or unset the pin"
            )
    return str(path) if is_in_parts or (sha256 is None and _may_be_named(path, content)) else content


def content_of(graph: Graph) -> bytes:
    """The model as its file has it, but for what was changed."""
    if isinstance(graph, Changed):
        return graph.content
    return Path(graph).read_bytes() if isinstance(graph, str) else graph


def folder_of(graph: Graph) -> str:
    """Where its weights in other files lie; below the null device, where nothing lies, if its file has all of it."""
    if isinstance(graph, Changed):
        return graph.folder
    return str(Path(graph).parent) if isinstance(graph, str) else os.devnull


def digest_of(path: Path) -> str:
    """The file's SHA-256 in hexadecimal; empty where it cannot be read, which its reading will tell.

    Where weights lie in other files, of their digests, too: a new training writes those and leaves the graph as it was.
    0.7 s of CPU for each GiB, beside other threads (measured 2026-11).
    """
    try:
        if path.stat().st_size > LARGEST_FILE:
            return ""
        own, beside = _graph(path, *_as_it_is(path))
        weights = [path.parent / name for name in beside]
        parts = [own, *(_weights(file, *_as_it_is(file)) for file in weights if file.is_file())]  # a device has no end
    except (OSError, MemoryError):
        return ""
    return own if not weights else hashlib.sha256("".join(parts).encode()).hexdigest()


def _as_it_is(file: Path) -> tuple[int, ...]:
    """What changes with the file: a start asks for its digest twice, before and after all is loaded."""
    found = file.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


@lru_cache(maxsize=1)
def _graph(path: Path, *_as_it_is: int) -> tuple[str, Sequence[str]]:
    """The digest of the model's own file, and the other files that it names."""
    content = path.read_bytes()
    return hashlib.sha256(content).hexdigest(), sorted(locations(content))


@lru_cache(maxsize=1024)  # some exports give each tensor a file
def _weights(path: Path, *_as_it_is: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_kind(path: Path, content: bytes) -> None:
    if not content:
        raise BadConfiguration(f"{path}: the model is empty")
    if content.startswith(b"version https://git-lfs"):
        raise BadConfiguration(f"{path}: a Git LFS pointer, not the model: run `git lfs pull`")
    if kind := next((kind for start, kind in _OTHER_KINDS.items() if content.startswith(start)), None):
        raise BadConfiguration(f"{path}: {kind}, and no ONNX model: export it as one (docs/models.md says how)")


def _may_be_named(path: Path, content: bytes) -> bool:
    """ONNX Runtime takes a path of UTF-8 alone, and tells its own format from ONNX by the name, not by the content."""
    is_utf8 = str(path).encode(errors="ignore").decode() == str(path)
    return is_utf8 and (path.suffix == ".ort") == (content[4:8] == b"ORTM")


def _check_pin(path: Path, content: bytes, sha256: str) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != sha256.lower():
        raise BadConfiguration(
            f"WORKER_MODEL__SHA256: {path} has {found}, not {sha256.lower()}: it is another model than the one pinned"
        )
