"""The file that `init` writes: read back, it says what was in force, and it holds no secret."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.unit.test_settings_shown import MINIMUM
from worker.settings import Settings, load
from worker.tools.init.settings_file import WIDTH, settings_file

# One of each kind of value, and the names that a file must quote.
OF_EACH_KIND = {
    "WORKER_KAFKA__REQUEST_TOPICS": "requests",  # with state there is one
    "WORKER_KAFKA__GROUP_ID": "of \"quotes\" and 'quotes', \\ ü \x7f",
    "WORKER_KAFKA__CHANGELOG_TOPIC": "states",
    "WORKER_KAFKA__CONFIG": '{"client.id": "it\'s", "fetch.wait.max.ms": 50}',
    "WORKER_MODEL__INPUT_DEFAULTS": '{"attention_mask": 1, "lang": "de"}',
    "WORKER_MODEL__WARM_UP_ROWS": "1,8",
    "WORKER_BATCHING__BUCKETS": '{"input_ids": {"axis": 1, "boundaries": [16, 32], "pad": 0}}',
    "WORKER_BATCHING__LINGER_MS": "2.5",
    "WORKER_BATCHING__MAX_BATCH_SIZE": "64",
    "WORKER_STATE__TENSORS": '{"h_in": "h_out"}',
    "WORKER_STATE__ANSWER": "true",
    "WORKER_STATE__INITIAL": "0.5",
    "WORKER_TELEMETRY__REPLICAS": "http://a:1/,http://b:2/",
}
LOGIN = {
    "WORKER_KAFKA__SECURITY_PROTOCOL": "SASL_SSL",
    "WORKER_KAFKA__SASL_MECHANISM": "PLAIN",
    "WORKER_KAFKA__SASL_USERNAME": "me",
    "WORKER_KAFKA__SASL_PASSWORD": "hunter2",
    "WORKER_KAFKA__CONFIG": '{"ssl.keystore.password": "hunter3"}',
}


def written(environ: Mapping[str, str]) -> str:
    return settings_file(load(None, environ), environ, {})


def read_back(text: str, folder: Path, environ: Mapping[str, str] = {}) -> Settings:
    (folder / "worker.toml").write_text(text, encoding="utf-8")
    return load(folder / "worker.toml", environ)


@pytest.mark.parametrize("more", [{}, OF_EACH_KIND], ids=["the least", "of each kind"])
def test_the_file_says_what_is_in_force(more: Mapping[str, str], tmp_path: Path) -> None:
    """Read without an environment, it makes the settings that it was written from."""
    environ = {**MINIMUM, **more}

    assert read_back(written(environ), tmp_path) == load(None, environ)


def test_a_default_may_be_uncommented(tmp_path: Path) -> None:
    """Every setting that stands in a comment is one, with the value that it has there."""
    text = written(MINIMUM)
    lines = [line.removeprefix("# ") if " = " in line else line for line in text.splitlines()]

    assert tomllib.loads(text)["kafka"].keys() < tomllib.loads("\n".join(lines))["kafka"].keys()
    assert read_back("\n".join(lines), tmp_path) == load(None, MINIMUM)


def test_no_secret_is_in_the_file(tmp_path: Path) -> None:
    """It says where each is read instead, and works with those in the environment."""
    environ = {**MINIMUM, **LOGIN}
    text = written(environ)
    secrets = ("WORKER_KAFKA__SASL_PASSWORD", "WORKER_KAFKA__CONFIG")

    said = text.replace("\n# ", " ")
    assert "hunter" not in text
    assert "not in this file: set WORKER_KAFKA__SASL_PASSWORD, or WORKER_KAFKA__SASL_PASSWORD_FILE." in said
    assert "config holds a secret and is not in this file: set WORKER_KAFKA__CONFIG." in said
    assert read_back(text, tmp_path, {name: environ[name] for name in secrets}) == load(None, environ)


def test_what_was_found_stands_with_its_setting() -> None:
    """Behind the setting's own sentence, no line longer than the others; a setting that has some is shown."""
    found = {"WORKER_BATCHING__BUCKETS": ["lengths differ", "so " * 50 + "long"]}

    text = settings_file(load(None, MINIMUM), MINIMUM, found)

    entry = next(entry for entry in text.split("\n\n") if "Found" in entry)
    assert entry.startswith("# Axes to pad")
    assert "\n# Found: lengths differ.\n# Found: so so" in entry
    assert entry.endswith('\n# buckets = "{}"')
    assert max(map(len, text.splitlines())) <= WIDTH
