"""How much memory the container may use, as the kernel says it."""

from pathlib import Path

import pytest

from worker.telemetry.memory_limit import memory_limit


@pytest.mark.parametrize(
    ("file", "said", "limit"),
    [
        ("memory.max", "536870912\n", 536_870_912),
        ("memory.max", "max\n", None),
        ("memory/memory.limit_in_bytes", "536870912\n", 536_870_912),
        ("memory/memory.limit_in_bytes", "9223372036854771712\n", None),
        ("something.else", "1\n", None),
    ],
)
def test_both_versions_of_control_groups_are_read(tmp_path: Path, file: str, said: str, limit: int | None) -> None:
    """And each has its own way to say that there is no limit."""
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(said)

    assert memory_limit(tmp_path) == limit
