"""Files that one run alone writes.

Two runs with one output would mix their rows, and the first to end would give the other's unfinished file its full
name. So a run claims what it writes, by a lock of the system (flock). It ends with the process, however that ends: what
a killed run leaves can be written over, and no lock file has to be removed. Owns nothing: who claims a file closes it.

Where a file system has no locks, two runs are not kept apart.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path

from worker.core.failures import BadConfiguration

# What a file system answers that has no locks.
_NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}


def claimed(path: Path) -> int:
    """The file, open for writing and empty. A device or a pipe has no owner.

    Raises `BadConfiguration` where another run has it, or where it cannot be written.
    """
    while True:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
        except OSError as error:
            raise BadConfiguration(f"{path}: cannot be written: {error.strerror}") from error
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return descriptor
            _lock(descriptor, path, fcntl.LOCK_EX)
            if is_still(path, descriptor):
                os.ftruncate(descriptor, 0)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # the run that had it gave it its full name, or removed it, just before it let go


def check_unclaimed(path: Path) -> None:
    """Raises `BadConfiguration` where another run writes this file, which is there."""
    with suppress(OSError), path.open("rb") as opened:
        _lock(opened.fileno(), path, fcntl.LOCK_SH)


def _lock(descriptor: int, path: Path, kind: int) -> None:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BadConfiguration(f"{path}: another run is writing it; wait for its end, or give another name") from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise BadConfiguration(f"{path}: cannot be written: {error.strerror}") from error


def is_still(path: Path, descriptor: int) -> bool:
    """Whether that name is this file's. It may have been removed, and another run made one of its own."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
