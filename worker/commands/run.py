"""`inference-worker run`: serve until told to stop."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

from worker.app import run as serve
from worker.settings import load


def run(config_path: Path | None) -> NoReturn:
    """End the process as the worker ends. Raises `Stop` for one that could not start."""
    serve(load(config_path, os.environ))
