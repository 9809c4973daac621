"""ONNX Runtime's own telemetry, seen from outside: what it keeps on disk while it is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(("wish", "is_kept"), [(None, False), ("0", True)])
def test_no_usage_is_collected_unless_wished(wish: str | None, is_kept: bool, tmp_path: Path) -> None:  # noqa: FBT001
    """The runtime that the worker imports keeps no identifier and no queue of events, unless the operator says so."""
    # CI variables would switch it off by themselves.
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    if wish is not None:
        environment["ORT_DISABLE_TELEMETRY"] = wish

    subprocess.run([sys.executable, "-c", "import worker.inference"], env=environment, check=True)

    assert any(path.is_file() for path in tmp_path.rglob("*")) == is_kept
