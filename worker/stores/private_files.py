"""Files in a directory that others may write to, as `/tmp`, are opened for this user alone and through no link.

A link that another user left under a name of ours would have the file that it leads to overwritten, with our rights.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO


def opened(path: Path, mode: str) -> IO[bytes]:
    """As `open`; raises `OSError` for a link, too. A pipe, which could be waited for without end, fails or is empty."""
    return open(path, mode, opener=_opener)  # that of a path takes no opener


def made_folder(path: Path) -> None:
    """Make it unless it is there. Raises `OSError` for a link, and for what is no folder."""
    path.mkdir(mode=0o700, exist_ok=True)
    if path.is_symlink():
        raise OSError(f"{path} is a link, and may be another user's")


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
