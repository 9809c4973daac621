"""The checkpoint that a clean stop leaves next to the states: their changelog, how far they reach, their checksums.

It exists only while no process has the states open, because a process that opens them first removes it durably. So
states without a checkpoint were left by a process that did not stop cleanly. The state files are not synchronised: if
they changed later, or had not reached the disk when the machine failed, their checksums differ.

Others may be able to write to the directory, for example to `/tmp`. So files are opened for this user alone and never
through a link, which could make us overwrite the file that it leads to, with our rights.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

from worker.core.records import Partition
from worker.state.restoring import Extent

NAME = "checkpoint.json"
FORMAT = 3  # of this file, and of the stored states
PIECE = 16 << 20  # bytes read at once; the checksum of a gigabyte takes 0.35 s (measured 2026-11)

DAMAGED = "it is damaged"


class FoundCheckpoint(NamedTuple):
    """The states that can be used, or `why` they cannot. Both are empty if there were none."""

    extents: Mapping[Partition, Extent] = {}
    why: str | None = None


def leave(
    folder: Path,
    states: Path,
    identity: Mapping[str, object],
    extents: Mapping[Partition, Extent],
    go_on: Callable[[], bool],
) -> bool:
    """Write the checkpoint, after the last change in `states`. Returns False if `go_on` said no before the end."""
    if (files := _checksums(states, go_on)) is None:
        return False
    reach = [[*partition, *extent] for partition, extent in extents.items()]
    said = json.dumps({"identity": {"format": FORMAT, **identity}, "extents": reach, "files": files}).encode()
    new = folder / f"{NAME}.new"
    new.unlink(missing_ok=True)  # left by a process that was killed, or a link to another file
    with opened(new, "xb") as file:
        file.write(b"%08x %b" % (zlib.crc32(said), said))
        file.flush()
        os.fsync(file.fileno())
    new.replace(folder / NAME)
    _synchronise(folder)
    return True


def take(folder: Path, states: Path, identity: Mapping[str, object]) -> FoundCheckpoint:
    """Read and remove the checkpoint: from now on the states may change. Raises `OSError`."""
    written = b""
    with suppress(FileNotFoundError):
        with opened(folder / NAME, "rb") as file:
            written = file.read()
        (folder / NAME).unlink()
        _synchronise(folder)
    if not states.exists() or not any(states.iterdir()):
        return FoundCheckpoint()
    if not written:
        return FoundCheckpoint(why="the process that had it did not stop cleanly")
    try:
        return _read(written, states, {"format": FORMAT, **identity})
    except (ValueError, KeyError, TypeError):
        return FoundCheckpoint(why=DAMAGED)


def _read(written: bytes, states: Path, identity: Mapping[str, object]) -> FoundCheckpoint:
    """Raises `ValueError`, `KeyError` or `TypeError` if the checkpoint is damaged."""
    checksum, said = written.split(b" ", 1)
    if int(checksum, 16) != zlib.crc32(said):
        raise ValueError(DAMAGED)
    found = json.loads(said)
    for name, ours in identity.items():
        if (theirs := found["identity"].get(name)) != ours:
            return FoundCheckpoint(why=f"it is of another {name}: {theirs}, and not {ours}")
    if found["files"] != _checksums(states, lambda: True):
        return FoundCheckpoint(why=DAMAGED)
    return FoundCheckpoint({Partition(topic, number): Extent(*extent) for topic, number, *extent in found["extents"]})


def _checksums(folder: Path, go_on: Callable[[], bool]) -> dict[str, list[int]] | None:
    """Returns the size and checksum of each file, or None if `go_on` returned False before all were read."""
    found: dict[str, list[int]] = {}
    for path in sorted(folder.iterdir()):
        found[path.name] = told = [path.stat().st_size, 0]
        with path.open("rb", buffering=0) as file:
            while piece := file.read(PIECE):
                if not go_on():
                    return None
                told[1] = zlib.crc32(piece, told[1])
    return found


def _synchronise(folder: Path) -> None:
    """Makes the folder's list of files durable, should the machine fail."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def opened(path: Path, mode: str) -> IO[bytes]:
    """Opens a file as `open` does, and raises `OSError` for a link. A pipe fails or is empty, and never blocks."""
    return open(path, mode, opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600))


def made_folder(path: Path) -> None:
    """Make the folder unless it exists. Raises `OSError` for a link, and for a path that is not a folder."""
    path.mkdir(mode=0o700, exist_ok=True)
    if path.is_symlink():
        raise OSError(f"{path} is a link, and may be another user's")
