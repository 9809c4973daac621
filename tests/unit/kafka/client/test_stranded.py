"""A worker gives up a client for a new start when it has no broker, or an old login."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from tests.fakes import Clock
from worker.kafka.client.stranded import ASK_AGAIN_AFTER, LOST_AFTER, LoginFiles, Stranded


class Brokers:
    """Makes clients that reach the brokers, or do not."""

    def __init__(self) -> None:
        self.are_away = False
        self.is_refused = False  # the configuration
        self.asked = self.closed = 0

    def list_topics(self, timeout: float) -> None:  # nothing takes time here
        self.asked += 1
        if self.are_away:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, "no broker answers"))

    def close(self) -> None:
        self.closed += 1

    def client(self) -> Consumer:
        if self.is_refused:
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "ssl.ca.location failed: No such file"))
        return cast("Consumer", self)


class Post:
    """A client's reports, and its brokers."""

    def __init__(self) -> None:
        self.brokers, self.clock = Brokers(), Clock()
        self._stranded = Stranded("consumer", self.brokers.client, self.clock)

    def why(self, brokers: int = 0) -> str:
        return self._stranded.why(brokers) or ""


def test_a_client_that_knows_no_broker_is_stranded_soon() -> None:
    """It has no broker to connect to, even if it waits for one. The reason says for how long."""
    post = Post()
    assert not post.why()
    post.clock.now += LOST_AFTER - 1
    assert not post.why()
    assert post.brokers.asked == 0

    post.clock.now += 1

    assert post.why() == "the consumer has known no broker for 5 s, and a new client is answered at once"
    assert (post.brokers.asked, post.brokers.closed) == (1, 1)


@pytest.mark.parametrize("whose", ["are_away", "is_refused"])
def test_where_a_new_client_is_not_answered_either_it_is_asked_again_later(whose: str) -> None:
    """The brokers must come back. A certificate may be gone, too: then no client can be made."""
    post = Post()
    setattr(post.brokers, whose, True)
    post.why()
    post.clock.now += LOST_AFTER
    assert not post.why()
    setattr(post.brokers, whose, False)
    assert not post.why()

    post.clock.now += ASK_AGAIN_AFTER

    assert post.why()
    assert post.brokers.asked == post.brokers.closed > 0


def test_a_client_that_has_found_a_broker_again_is_not_stranded() -> None:
    """It may lose the broker again at once."""
    post = Post()
    post.why()
    post.clock.now += LOST_AFTER
    assert not post.why(brokers=1)

    assert not post.why()
    assert post.brokers.asked == 0


# Logins in files


@pytest.mark.parametrize(
    ("code", "now", "is_told"),
    [
        (KafkaError._AUTHENTICATION, "new", True),
        (KafkaError._SSL, "new", True),
        (KafkaError._ALL_BROKERS_DOWN, "new", False),  # open connections do not log in again
        (KafkaError._AUTHENTICATION, "", False),
        (KafkaError._AUTHENTICATION, None, False),
    ],
    ids=["password", "certificate", "brokers away", "being written", "gone"],
)
def test_a_refusal_after_a_login_file_changed_wants_a_new_start(
    tmp_path: Path, code: int, now: str | None, *, is_told: bool
) -> None:
    """The reason has the file's name and the client's words. Without a new file the worker waits."""
    file = tmp_path / "password"
    file.write_text("old")
    files = LoginFiles([file, tmp_path / "never.there"])
    assert files.why_refused(KafkaError(code, "invalid credentials")) is None
    file.unlink()
    if now is not None:
        file.write_text(now)
        os.utime(file, ns=(0, 1_000))

    why = files.why_refused(KafkaError(code, "invalid credentials")) or ""

    assert (f"{file} changed since this worker started: start again" in why) == is_told
    assert why.endswith("invalid credentials") == is_told
