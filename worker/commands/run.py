"""`inference-worker run`: serve until told to stop."""

from __future__ import annotations

import os
from pathlib import Path

from worker.app import run as serve
from worker.settings import load


def run(config_path: Path | None) -> int:
    """The exit code of a worker that ended by itself. Raises `Stop` for one that could not start or go on."""
    return serve(load(config_path, os.environ))
