"""The file that `init` writes: it gives back the settings in force, and holds no secret."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.unit import test_settings_shown
from worker.settings import Settings, load
from worker.tools.settings_file import WIDTH, settings_file

MINIMUM = test_settings_shown.MINIMUM | {"WORKER_MODEL__PATH": "/models/model.onnx"}
# One value of each kind, and names that a file must quote.
OF_EACH_KIND = {
    "WORKER_KAFKA__REQUEST_TOPICS": "requests",  # with state there may be only one
    "WORKER_KAFKA__GROUP_ID": "of \"quotes\" and 'quotes', \\ ü \x7f",
    "WORKER_KAFKA__CHANGELOG_TOPIC": "states",
    "WORKER_KAFKA__CONFIG": '{"client.id": "it\'s", "fetch.wait.max.ms": 50}',
    "WORKER_MODEL__INPUT_DEFAULTS": '{"attention_mask": 1, "lang": "de"}',
    "WORKER_MODEL__PROVIDER_OPTIONS": '{"CUDAExecutionProvider": {"use_tf32": "0"}}',
    "WORKER_BATCHING__BUCKETS": (
        '{"a.b": {"axis": 1, "boundaries": [16, 32], "pad": 0}, "c": [{"axis": 1, "boundaries": [4]}]}'
    ),
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


def written(environ: Mapping[str, str], folder: Path) -> str:
    return settings_file(load(None, environ), environ, folder)


def read_back(text: str, folder: Path, environ: Mapping[str, str] = {}) -> Settings:
    (folder / "worker.toml").write_text(text, encoding="utf-8")
    return load(folder / "worker.toml", environ)


@pytest.mark.parametrize("more", [{}, OF_EACH_KIND], ids=["the least", "of each kind"])
def test_the_file_says_what_is_in_force(more: Mapping[str, str], tmp_path: Path) -> None:
    """Read without an environment, it gives the settings that it was written from."""
    environ = {**MINIMUM, **more}

    assert read_back(written(environ, tmp_path), tmp_path) == load(None, environ)


def test_a_default_may_be_uncommented(tmp_path: Path) -> None:
    """Every setting in a comment is a real setting with its default value."""
    text = written(MINIMUM, tmp_path)
    lines = [line.removeprefix("# ") if " = " in line else line for line in text.splitlines()]

    assert tomllib.loads(text)["kafka"].keys() < tomllib.loads("\n".join(lines))["kafka"].keys()
    assert read_back("\n".join(lines), tmp_path) == load(None, MINIMUM)


def test_no_secret_is_in_the_file(tmp_path: Path) -> None:
    """It says where each secret is read instead, and works with the secrets in the environment."""
    environ = {**MINIMUM, **LOGIN}
    text = written(environ, tmp_path)
    secrets = ("WORKER_KAFKA__SASL_PASSWORD", "WORKER_KAFKA__CONFIG")

    said = text.replace("\n# ", " ")
    assert "hunter" not in text
    assert "not in this file: set WORKER_KAFKA__SASL_PASSWORD, or WORKER_KAFKA__SASL_PASSWORD_FILE." in said
    assert "config holds a secret and is not in this file: set WORKER_KAFKA__CONFIG." in said
    assert read_back(text, tmp_path, {name: environ[name] for name in secrets}) == load(None, environ)


def test_objects_are_tables_and_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a reader can change them, and the folder can be moved. No line is longer than the width."""
    monkeypatch.chdir(tmp_path)

    text = written(MINIMUM | OF_EACH_KIND | {"WORKER_MODEL__PATH": "models/m.onnx"}, Path("conf"))

    read = tomllib.loads(text)
    assert read["batching"]["buckets"]["a.b"] == {"axis": 1, "boundaries": [16, 32], "pad": 0}
    assert read["kafka"]["config"] == {"client.id": "it's", "fetch.wait.max.ms": 50}
    assert read["model"]["path"] == "../models/m.onnx"
    assert '\n[batching.buckets."a.b"]\naxis = 1\n' in text
    assert "\n# [batching.buckets]\n" in written(MINIMUM, Path())
    assert max(map(len, text.splitlines())) <= WIDTH
