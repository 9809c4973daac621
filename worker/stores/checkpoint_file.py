"""The file that a clean stop leaves next to the states: their changelog, how far they reach, and their checksums.

It is there only while no process has the states open: the one that opens them removes it first, durably. So states
without it were left by a process that did not end well, and states that changed since do not have its checksum. That
also says whether all had reached the disk when a machine went down: the states themselves are not synchronised.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from worker.core.records import Partition
from worker.state.extents import Extent
from worker.stores.private_files import opened

NAME = "checkpoint.json"
FORMAT = 2  # of this file, and of how states are stored
PIECE = 16 << 20  # read at once; a gigabyte has its checksum in 0.35 s (measured 2026-11)

UNCLEAN = "the process that had it did not stop cleanly"
DAMAGED = "it is damaged"


class Found(NamedTuple):
    """The states that can be used; else `why` not. Neither: there was nothing."""

    extents: Mapping[Partition, Extent] = {}
    why: str | None = None


def leave(
    folder: Path,
    states: Path,
    identity: Mapping[str, object],
    extents: Mapping[Partition, Extent],
    go_on: Callable[[], bool],
) -> bool:
    """Write it, as the last thing that is done with what lies in `states`. Whether that was before `go_on` said no."""
    if (files := _files(states, go_on)) is None:
        return False
    said = json.dumps(
        {
            "format": FORMAT,
            "identity": identity,
            "extents": [[*partition, *extent] for partition, extent in extents.items()],
            "files": files,
        }
    ).encode()
    new = folder / f"{NAME}.new"
    new.unlink(missing_ok=True)  # of a process that was killed, or a link to another file
    with opened(new, "xb") as file:
        file.write(b"%08x %b" % (zlib.crc32(said), said))
        file.flush()
        os.fsync(file.fileno())
    new.replace(folder / NAME)
    _synchronise(folder)
    return True


def take(folder: Path, states: Path, identity: Mapping[str, object]) -> Found:
    """Read it, and remove it: the states may be changed from now on. Raises `OSError`."""
    written = b""
    with suppress(FileNotFoundError):
        with opened(folder / NAME, "rb") as file:
            written = file.read()
        (folder / NAME).unlink()
        _synchronise(folder)
    if not states.exists() or not any(states.iterdir()):
        return Found()
    if not written:
        return Found(why=UNCLEAN)
    try:
        return _read(written, states, identity)
    except (ValueError, KeyError, TypeError):
        return Found(why=DAMAGED)


def _read(written: bytes, states: Path, identity: Mapping[str, object]) -> Found:
    """Raises `ValueError`, `KeyError` or `TypeError` for what is damaged."""
    checksum, said = written.split(b" ", 1)
    if int(checksum, 16) != zlib.crc32(said):
        return Found(why=DAMAGED)
    found = json.loads(said)
    if found["format"] != FORMAT:
        return Found(why=f"it has format {found['format']}, and this version reads {FORMAT}")
    theirs = found["identity"]
    for name, ours in identity.items():
        if theirs.get(name) != ours:
            return Found(why=f"it is of another {name}: {theirs.get(name)}, and not {ours}")
    if found["files"] != _files(states, lambda: True):
        return Found(why=DAMAGED)
    return Found({Partition(topic, number): Extent(*extent) for topic, number, *extent in found["extents"]})


def _files(folder: Path, go_on: Callable[[], bool]) -> dict[str, list[int]] | None:
    """The size of each, and its checksum."""
    found: dict[str, list[int]] = {}
    for path in sorted(folder.iterdir()):
        if (checksum := _checksum(path, go_on)) is None:
            return None
        found[path.name] = [path.stat().st_size, checksum]
    return found


def _checksum(path: Path, go_on: Callable[[], bool]) -> int | None:
    checksum = 0
    with path.open("rb", buffering=0) as file:
        while piece := file.read(PIECE):
            if not go_on():
                return None
            checksum = zlib.crc32(piece, checksum)
    return checksum


def _synchronise(folder: Path) -> None:
    """What is in the folder, and what is not, stays so if the machine goes down."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
