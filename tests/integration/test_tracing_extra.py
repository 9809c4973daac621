"""Tracing asked for where its extra is not installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.models import mlp, save


def test_a_worker_says_what_to_install_before_it_does_anything_else(tmp_path: Path) -> None:
    """One line, exit code 2; it needs no broker to say so."""
    shadow = tmp_path / "opentelemetry"  # hides the installed one, as if there were none
    shadow.mkdir()
    (shadow / "__init__.py").touch()
    settings = {
        "KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "KAFKA__REQUEST_TOPICS": "requests",
        "KAFKA__RESPONSE_TOPIC": "answers",
        "KAFKA__GROUP_ID": "group",
        "MODEL__PATH": str(save(mlp(4, (), 2), tmp_path)),
        "TELEMETRY__TRACING": "true",
    }
    environment = {**os.environ, **{f"WORKER_{key}": value for key, value in settings.items()}}

    ended = subprocess.run(
        [sys.executable, "-m", "worker", "run"],
        env={**environment, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=30.0,
        check=False,
    )

    assert ended.returncode == 2, ended.stderr
    assert ended.stderr == (
        "inference-worker: WORKER_TELEMETRY__TRACING: OpenTelemetry is not installed (No module named "
        "'opentelemetry.context'): install this package with its extra, pip install '.[otel]', or switch tracing off\n"
    )
