"""A login that is refused ends the worker where a new start would log in with another one, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from worker.kafka.client.login_files import LoginFiles

REFUSED = KafkaError(KafkaError._AUTHENTICATION, "invalid credentials")


@pytest.fixture
def password(tmp_path: Path) -> Path:
    """The file that holds it."""
    file = tmp_path / "password"
    file.write_text("old")
    return file


def test_a_refusal_after_the_password_changed_wants_a_new_start(password: Path) -> None:
    """With the file's name, and the client's words."""
    files = LoginFiles([password, password.with_name("never.there")], [])
    password.write_text("new")

    why = files.why_refused(REFUSED)

    assert why is not None
    assert f"{password} changed since this worker started: start again" in why
    assert why.endswith("invalid credentials")


def test_a_certificate_that_is_new_counts_where_the_old_one_is_refused(password: Path) -> None:
    """TLS says it in its own code; a login that goes by a password is not refused for a certificate."""
    files = LoginFiles([], [password])
    password.write_text("new")

    assert files.why_refused(KafkaError(KafkaError._SSL, "certificate expired")) is not None
    assert files.why_refused(REFUSED) is None


@pytest.mark.parametrize("now", ["old", "", None], ids=["as it was", "empty", "gone"])
def test_a_refusal_while_nothing_new_is_there_is_waited_out(password: Path, now: str | None) -> None:
    """The brokers may be what is wrong; and a file that is gone or empty is being written."""
    files = LoginFiles([password], [password])
    password.unlink()
    if now is not None:
        password.write_text(now)

    assert files.why_refused(REFUSED) is None


def test_a_broker_that_is_away_says_nothing_of_the_login(password: Path) -> None:
    """Though the file changed: connections that stand are not asked again."""
    files = LoginFiles([password], [password])
    password.write_text("new")

    assert files.why_refused(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")) is None
