"""Mistakes that stop a client before its first contact with a broker. Nothing listens here."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from tests.kafka.broker import free_port
from tests.kafka.certificates import Authority
from worker.core.failures import BadConfiguration
from worker.kafka.client.connecting import connect
from worker.settings import Connection

SECRET = "nobody's business"  # noqa: S105  # to be noticed where it must not be


def refusal(**settings: Any) -> str:
    """The error line of a refused start. Fails the test if it has the secret."""
    kafka = Connection(bootstrap_servers=f"127.0.0.1:{free_port()}", **settings)
    with pytest.raises(BadConfiguration) as refused:
        connect(kafka, logging.getLogger("librdkafka"), 3.0, "answers")
    assert SECRET not in str(refused.value)
    return str(refused.value)


def test_an_endpoint_that_issues_no_token_is_named() -> None:
    """No broker is blamed, because none was asked."""
    url = f"http://127.0.0.1:{free_port()}/token"
    login = {"oauth_client_id": "me", "oauth_client_secret": SECRET, "oauth_token_endpoint_url": url}

    line = refusal(security_protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER", **login)

    assert line.startswith("WORKER_KAFKA__OAUTH_TOKEN_ENDPOINT_URL: no token is issued there: ")


@pytest.mark.parametrize("password", [None, SECRET])
def test_a_key_that_no_password_opens_is_told_with_the_setting_for_it(tmp_path: Path, password: str | None) -> None:
    """The password is missing or wrong: the client's own words are for a file that is no key at all."""
    shown = Authority(tmp_path, "authority").issue("worker")
    key, locked = load_pem_private_key(shown.key.read_bytes(), None), tmp_path / "locked.key"
    locked.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"right")))
    files = {"ssl_certificate_location": shown.certificate, "ssl_key_location": locked, "ssl_key_password": password}

    line = refusal(security_protocol="SSL", **files)

    assert line.startswith(f"WORKER_KAFKA__SSL_KEY_LOCATION: {locked} cannot be used: ")
    assert "WORKER_KAFKA__SSL_KEY_PASSWORD" in line
