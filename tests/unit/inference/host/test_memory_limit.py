"""The memory limit of the model's process, from files as the kernel writes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from worker.inference.host.memory_limit import be_killed_first, container_limit, limit_for_host

GIB = 1 << 30
V1 = "9:name=systemd:/\n4:cpu,memory:/pod/own\n0::/\n"
V1_UNLIMITED = "9223372036854771712"
V1_FILE, POD = "memory.limit_in_bytes", "memory/pod"


def machine(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        ("0::/\n", {"memory.max": f"{GIB}\n"}, GIB),
        ("0::/\n", {"memory.max": "max\n"}, None),
        ("0::/pod/own\n", {"pod/own/memory.max": "max\n", "pod/memory.max": f"{GIB}\n"}, GIB),
        ("0::/pod/own\n", {"pod/own/memory.max": f"{2 * GIB}\n", "pod/memory.max": f"{GIB}\n"}, GIB),
        ("0::/seen/from/outside\n", {"memory.max": f"{GIB}\n"}, GIB),
        ("0::/../elsewhere\n", {}, None),
        (V1, {f"{POD}/own/{V1_FILE}": V1_UNLIMITED}, None),
        (V1, {f"{POD}/own/{V1_FILE}": V1_UNLIMITED, f"{POD}/{V1_FILE}": f"{GIB}\n"}, GIB),
        (V1, {f"memory/{V1_FILE}": f"{GIB}\n"}, GIB),
        ("4:cpuset:/\n", {"memory.max": f"{GIB}\n"}, None),
    ],
)
def test_the_least_limit_of_all_groups_holds(
    tmp_path: Path, groups: str, files: Mapping[str, str], limit: int | None
) -> None:
    """A container often sees the path that its group has outside; then its own group is the root of what it sees."""
    below = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}

    assert container_limit(machine(tmp_path, {"proc/self/cgroup": groups, **below})) == limit


def test_a_system_without_control_groups_has_no_limit(tmp_path: Path) -> None:
    """There is no `/proc`, either, on some systems."""
    assert container_limit(tmp_path) is None


@pytest.mark.parametrize(
    ("setting", "container", "limit"),
    [
        (None, None, None),
        (3 * GIB, None, 3 * GIB),
        (3 * GIB, GIB, 3 * GIB),
        (None, 2 * GIB, 2 * GIB - (128 << 20) - 3 * (64 << 20)),
        (None, GIB // 4, GIB // 8),
    ],
)
def test_the_worker_keeps_what_it_needs(setting: int | None, container: int | None, limit: int | None) -> None:
    """The setting goes before the container's limit; of a small container the model's process may have half."""
    assert limit_for_host(setting, 64 << 20, container) == limit


@pytest.mark.parametrize(("own", "raised"), [("0\n", "500"), ("-997\n", "-497"), ("985\n", "1000")])
def test_the_kernel_takes_the_model_s_process_first(tmp_path: Path, own: str, raised: str) -> None:
    """Its score is raised from what Kubernetes gave the container. Where there is none, nothing happens."""
    be_killed_first(tmp_path)
    file = machine(tmp_path, {"proc/self/oom_score_adj": own}) / "proc/self/oom_score_adj"

    be_killed_first(tmp_path)

    assert file.read_text() == raised
