"""An option that does nothing without another one is refused, since its user expects an effect."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from worker.cli import app

BROKERS = "--bootstrap-servers 127.0.0.1:9"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("publish - --timeout 30", "--timeout does nothing without --wait"),
        ("publish - --encoding rows --model m", "--encoding and --model do nothing without --random"),
        (f"consume --from-beginning --last 3 {BROKERS}", "--last does nothing with --from-beginning"),
        (f"consume --no-follow {BROKERS}", "--no-follow does nothing without --from-beginning or --last"),
        ("profile m.onnx --bucket-axis x:1", "--bucket-axis does nothing without --lengths"),
    ],
)
def test_an_option_that_does_nothing_is_refused(words: str, told: str) -> None:
    """This holds for the default value, too."""
    result = CliRunner().invoke(app, words.split(), env={"WORKER_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:9"})

    assert result.exit_code == 2
    assert result.stderr.startswith(f"inference-worker: {told}")
