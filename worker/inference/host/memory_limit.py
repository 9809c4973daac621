"""How much memory the model's process may have, so that a greedy run fails there before the container is killed.

The kernel kills when a container is at its limit. In Kubernetes it then kills all processes of the container at once
(`memory.oom.group`). So the model's process gets less than the container has, and a run that wants more fails alone.

The limit is `RLIMIT_DATA`: private memory that can be written, which is the heap and the whole stack of each thread (8
MiB). Addresses that are only reserved do not count; CUDA reserves more of them than a machine has memory, so
`RLIMIT_AS` is of no use. Tensors that the worker shares, and files that are mapped, do not count either.

All other memory of the container may run out, too. Where the kernel then kills one process, `oom_score_adj` has it take
the model's.

Reads and writes `/proc` and `/sys`, beneath `root`. Owns nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

MIB = 1024 * 1024
# The worker's own process has 67 MB without traffic and 77 under load (measured 2026-11); the Kafka client reads 32 MiB
# ahead.
WORKER_NEEDS = 128 * MIB
# A request in flight is there as bytes from Kafka, as tensors and as its answer.
COPIES_IN_FLIGHT = 3
# The model's process gets at least this share of the container. The sum above is the worst case; a container that has
# less than that serves well as long as requests are small.
LEAST_SHARE = 1 / 2
# The model's process counts as larger than it is by so many thousandths of the container. Half is enough, and leaves a
# pod that Kubernetes protects (-997) most of that protection.
RAISED_BY, HIGHEST_SCORE = 500, 1000

_UNLIMITED = 1 << 62  # cgroup v1 says the largest number of whole pages where there is no limit


def limit_for_host(setting: int | None, inflight_bytes: int, container: int | None) -> int | None:
    """The `RLIMIT_DATA` of the model's process, in bytes; None where nothing limits it.

    `setting` is MEMORY_LIMIT, which goes before all else; `inflight_bytes` is MAX_INFLIGHT_BYTES; `container` is the
    container's limit (`container_limit`).
    """
    if setting is not None or container is None:
        return setting
    return max(container - WORKER_NEEDS - COPIES_IN_FLIGHT * inflight_bytes, int(container * LEAST_SHARE))


def container_limit(root: Path = Path("/")) -> int | None:
    """The least memory limit of this process's control group and the groups around it, in bytes; None without one."""
    return min(_limits(root), default=None)


def be_killed_first(root: Path = Path("/")) -> None:
    """Let the kernel, where memory runs out, kill this process before the worker's. To raise a score needs no right."""
    file = root / "proc/self/oom_score_adj"
    with suppress(OSError):  # there is none, or it may not be written
        file.write_text(str(min(HIGHEST_SCORE, int(file.read_text()) + RAISED_BY)))


def _limits(root: Path) -> Iterator[int]:
    for folder, file in _groups(root):
        with suppress(OSError, ValueError):  # no such group: a container may see another path than it has; or `max`
            if (limit := int((folder / file).read_text())) < _UNLIMITED:
                yield limit


def _groups(root: Path) -> Iterator[tuple[Path, str]]:
    """The folder of each group that may limit this process's memory, with the name of the file that has the limit."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)  # `0::/a/b` (v2), `4:memory:/a/b` (v1)
        if controllers and "memory" not in controllers.split(","):
            continue
        base, file = ("memory", "memory.limit_in_bytes") if controllers else (".", "memory.max")
        own = PurePosixPath(path)
        for group in (own, *own.parents):
            yield root / "sys/fs/cgroup" / base / group.relative_to("/"), file
