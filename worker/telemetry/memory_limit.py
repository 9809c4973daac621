"""How much memory this process may have: what the control group of its container says.

Read once. Enforces nothing: the kernel does that.
"""

from __future__ import annotations

from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
# Version 1 says "no limit" with the largest number of pages there is.
_UNLIMITED = 1 << 60


def memory_limit(cgroups: Path = CGROUPS) -> int | None:
    """Bytes; None where no limit is set, or there are no control groups."""
    for file in (cgroups / "memory.max", cgroups / "memory" / "memory.limit_in_bytes"):
        try:
            said = file.read_text().strip()
        except OSError:
            continue
        return int(said) if said.isdigit() and int(said) < _UNLIMITED else None
    return None
