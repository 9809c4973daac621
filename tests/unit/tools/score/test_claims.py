"""What one run writes, no other one does."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from worker.core.failures import BadConfiguration
from worker.tools.score.files.claims import check_unclaimed, claimed, is_still


def test_a_claimed_file_is_nobody_else_s(tmp_path: Path) -> None:
    """And what stands in it stays."""
    path = tmp_path / "out"
    first = claimed(path)
    os.write(first, b"rows")

    with pytest.raises(BadConfiguration, match="out: another run is writing it; wait for its end, or give another"):
        claimed(path)
    with pytest.raises(BadConfiguration, match="another run is writing it"):
        check_unclaimed(path)

    assert path.read_bytes() == b"rows"
    os.close(first)


def test_what_a_run_left_is_written_over(tmp_path: Path) -> None:
    """Its claim ends with it, even if it was killed: the descriptor is closed."""
    path = tmp_path / "out"
    first = claimed(path)
    os.write(first, b"rows")
    os.close(first)

    check_unclaimed(path)
    second = claimed(path)

    assert path.read_bytes() == b""
    os.close(second)


def test_a_file_that_got_its_full_name_meanwhile_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between our opening and our lock the other run may end: then the file that we opened is its result."""
    path, result = tmp_path / "out.partial", tmp_path / "out"
    path.write_bytes(b"whole")
    lock = fcntl.flock

    def ended(descriptor: int, kind: int) -> None:
        if not result.exists():
            path.rename(result)
        lock(descriptor, kind)

    monkeypatch.setattr(fcntl, "flock", ended)
    ours = claimed(path)

    assert is_still(path, ours)
    assert result.read_bytes() == b"whole"
    os.close(ours)


def test_a_device_is_anybody_s() -> None:
    """`/dev/null` takes what any number of runs write."""
    first, second = claimed(Path(os.devnull)), claimed(Path(os.devnull))

    os.close(first)
    os.close(second)


def failing(number: int) -> Callable[[int, int], None]:
    def fail(descriptor: int, kind: int) -> None:  # noqa: ARG001 - flock's own
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_written_to(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs are not kept apart there."""
    monkeypatch.setattr(fcntl, "flock", failing(number))

    os.close(claimed(tmp_path / "out"))


def test_what_else_keeps_a_file_from_being_locked_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fails, for one."""
    monkeypatch.setattr(fcntl, "flock", failing(errno.EIO))

    with pytest.raises(BadConfiguration, match="out: cannot be written: Input/output error"):
        claimed(tmp_path / "out")
