"""The settings as `check` shows them, and the digest that replicas compare."""

from __future__ import annotations

import pytest

from tests.unit.test_settings import LEAST
from worker.core.failures import BadConfiguration
from worker.settings import load
from worker.settings.effective import effective

MINIMUM = LEAST | {"WORKER_KAFKA__REQUEST_TOPICS": "requests,backfill", "WORKER_MODEL__PATH": "model.onnx"}
LOGIN = {
    "WORKER_KAFKA__SECURITY_PROTOCOL": "SASL_SSL",
    "WORKER_KAFKA__SASL_MECHANISM": "PLAIN",
    "WORKER_KAFKA__SASL_USERNAME": "me",
    "WORKER_KAFKA__SASL_PASSWORD": "hunter2",
}


def test_what_was_set_is_told_from_what_is_a_default() -> None:
    """A reader sees what this deployment chose. A number is no secret, whatever the setting's name is."""
    given = {
        "WORKER_BATCHING__LANES": "1",
        "WORKER_BATCHING__BUCKETS": '{"ids": {"axis": 1, "boundaries": [4, 8], "pad": 0}}',
        "WORKER_MODEL__INPUT_DEFAULTS": '{"attention_mask": 1, "token_type_ids": 0}',
    }

    shown = {setting.name: setting for setting in effective(load(None, MINIMUM | given))}

    assert shown["WORKER_KAFKA__REQUEST_TOPICS"].value == ["requests", "backfill"]
    assert shown["WORKER_KAFKA__REQUEST_TOPICS"].text == "requests,backfill"
    assert not shown["WORKER_KAFKA__REQUEST_TOPICS"].is_default
    assert not shown["WORKER_BATCHING__LANES"].is_default, "set, to the default"
    assert shown["WORKER_BATCHING__BUCKETS"].text == 'ids=[{"axis": 1, "boundaries": [4, 8], "pad": 0}]'
    assert shown["WORKER_MODEL__INPUT_DEFAULTS"].text == "attention_mask=1, token_type_ids=0"
    assert shown["WORKER_MODEL__NAME"] == ("WORKER_MODEL__NAME", "model", True)
    assert shown["WORKER_KAFKA__ALLOW_PLAINTEXT"].text == "false"


def test_a_mapping_of_records_is_shown_as_it_was_set() -> None:
    """It has names of fields and no secrets, whatever they are called; without one there is no such section."""
    given = {
        "WORKER_RECORDS__INPUTS": '{"token": "card.token", "x": ["a", {"field": "b", "default": 0}]}',
        "WORKER_RECORDS__TEXT": '{"field": "body", "max_tokens": 64}',
    }

    shown = {setting.name: setting for setting in effective(load(None, MINIMUM | given))}

    assert shown["WORKER_RECORDS__INPUTS"].text == 'token=card.token, x=["a", {"field": "b", "default": 0}]'
    assert shown["WORKER_RECORDS__TEXT"].text == "field=body, max_tokens=64"
    assert shown["WORKER_RECORDS__ENCODING"] == ("WORKER_RECORDS__ENCODING", "json", True)
    assert shown["WORKER_RECORDS__KEY"].value is None
    assert not [one.name for one in effective(load(None, MINIMUM)) if one.name.startswith("WORKER_RECORDS__")]


def test_no_secret_is_shown() -> None:
    """This holds for our own secrets, and for those passed through to the client."""
    config = (
        '{"ssl.keystore.password": "hunter3", "sasl.oauthbearer.config": "principal=me extension_pw=hunter4", '
        '"linger.ms": "7", "ssl.key.pem": "hunter5", "https.proxy": "http://me:hunter6@a:80"}'
    )
    settings = load(None, {**MINIMUM, **LOGIN, "WORKER_KAFKA__CONFIG": config})

    shown = {setting.name: setting for setting in effective(settings)}

    assert shown["WORKER_KAFKA__SASL_PASSWORD"].value == "***"
    assert shown["WORKER_KAFKA__SASL_USERNAME"].value == "me"
    assert shown["WORKER_KAFKA__CONFIG"].text == (
        "ssl.keystore.password=***, sasl.oauthbearer.config=***, linger.ms=7, ssl.key.pem=***, https.proxy=***"
    )
    assert "hunter" not in str(shown)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(
            ("TELEMETRY__REPLICAS", f"http://h/,http://{what}/")
            for what in ("hunter2@h", "me:hunter2@h", "h/?token=hunter2")
        ),
        ("KAFKA__OAUTH_TOKEN_ENDPOINT_URL", "https://hunter2@issuer/"),
        ("KAFKA__OAUTH_TOKEN_ENDPOINT_URL", "https://issuer/?client_secret=hunter2"),
        ("KAFKA__CONFIG", '{"http.proxy": "http://hunter2@proxy"}'),
        ("KAFKA__SSL_KEY_LOCATION", "-----BEGIN PRIVATE KEY-----\nhunter2"),
        ("STATE__STORE", "redis://:hunter2@localhost"),
        ("STATE__STORE", "rediss://localhost?password=hunter2"),
    ],
)
def test_what_is_refused_for_its_secret_does_not_show_it(key: str, value: str) -> None:
    """The refusal does not show it, nor does `check` if the setting is accepted."""
    try:
        told = str(list(effective(load(None, {**MINIMUM, **LOGIN, f"WORKER_{key}": value}))))
    except BadConfiguration as refusal:
        told = str(refusal)

    assert "hunter2" not in told
