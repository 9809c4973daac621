"""The Kafka clients repeat themselves; the log does not."""

from __future__ import annotations

import logging

import pytest

from tests.fakes import Clock
from worker.kafka.client.errors import REPEAT_EVERY, ClientLog


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(clock: Clock) -> ClientLog:
    return ClientLog(logging.getLogger("librdkafka"), clock)


def refused(log: ClientLog, broker: str) -> None:
    """A refused connection in librdkafka's words."""
    log.log(logging.ERROR, "%s [%s] %s", "FAIL", "rdkafka#consumer-1", f"[thrd:{broker}]: {broker}: Connection refused")


def test_what_goes_on_is_told_once_and_counted(log: ClientLog, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """Each broker's first line is logged at once, then one every ten seconds that counts those left out."""
    for _ in range(51):
        refused(log, "b1:9092")
    refused(log, "b2:9092")
    clock.now += REPEAT_EVERY
    refused(log, "b1:9092")

    assert log.last == "b1:9092: Connection refused"
    assert caplog.messages == [
        "FAIL: b1:9092: Connection refused",
        "FAIL: b2:9092: Connection refused",
        "FAIL: b1:9092: Connection refused (50 more like it since the last line)",
    ]


def test_a_transaction_that_waits_for_the_last_one_is_no_error(
    log: ClientLog, caplog: pytest.LogCaptureFixture
) -> None:
    """librdkafka reports each as an error and retries by itself; its other errors about transactions are logged."""
    about = "[thrd:TxnCoordinator]: TxnCoordinator/1: Failed to add offsets to transaction on broker TxnCoordinator/1: "
    busy = "Broker: Producer attempted to update a transaction while another concurrent operation on the same "

    log.log(logging.ERROR, "%s", "ADDOFFSETS", "rdkafka#producer-1", f"{about}{busy}transaction was ongoing")
    log.log(logging.ERROR, "%s", "ADDOFFSETS", "rdkafka#producer-1", f"{about}Broker: Group authorization failed")

    assert len(caplog.messages) == 1
    assert caplog.messages[0].endswith("Group authorization failed")
    assert log.last.endswith("Group authorization failed")


def test_a_password_in_an_address_is_left_out(log: ClientLog, caplog: pytest.LogCaptureFixture) -> None:
    """The client quotes the address it was given, and an operator may have put a password there."""
    log.log(logging.ERROR, "%s", "OIDC", "c", '[thrd:main]: cannot retrieve a token from "http://u:geheim@host/t"')

    assert "geheim" not in caplog.text
    assert "http://***@host/t" in log.last
