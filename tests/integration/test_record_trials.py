"""`records try` has the operator's functions run in a real host: a record has the verdict that a worker gives it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.integration.test_record_functions import FUNCTIONS, HARMS, LIMIT, MODEL
from worker import cli

SETTINGS = f"""
[model]
path = "{MODEL}"
run_timeout_s = 4
memory_limit = {LIMIT}
[records]
functions = "{FUNCTIONS}"
"""


@pytest.mark.timeout(300)
def test_every_harm_that_a_function_does_costs_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The command goes on, and its neighbours have their answers."""
    records = [{"n": 1, "inputs": harm} if harm else {"n": n} for n, harm in enumerate([None, *HARMS, None])]
    (tmp_path / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (tmp_path / "worker.toml").write_text(SETTINGS)

    tried = CliRunner().invoke(
        cli.app, ["records", "try", str(tmp_path / "records.jsonl"), "--config", str(tmp_path / "worker.toml")]
    )

    assert tried.exit_code == 7, tried.output
    for record, line in zip(records, capfd.readouterr().out.splitlines(), strict=True):
        answer = json.loads(line)
        if "inputs" not in record:
            assert answer == {"n": record["n"], "twice": 2.0 * record["n"]}
            continue
        code, why = HARMS[record["inputs"]]
        assert answer["code"] == code
        assert why in answer["error"]
