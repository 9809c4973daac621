"""ONNX Runtime's own telemetry, seen from outside by its files on disk during the import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_no_usage_is_collected(tmp_path: Path) -> None:
    """The runtime that the worker imports keeps no identifier and no queue of events."""
    # CI variables would switch it off by themselves.
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}

    subprocess.run([sys.executable, "-c", "import worker.inference"], env=environment, check=True)

    assert not any(path.is_file() for path in tmp_path.rglob("*"))
