"""Complaints of Kafka's clients, and how many of them reach a program's log."""

from __future__ import annotations

import logging

import pytest

from inference_client.log import REPEAT_EVERY, ClientLog

REFUSED = "Connect to ipv4#10.0.0.1:9092 failed: Connection refused"


class Heard:
    """A log with a clock that tests move."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log = ClientLog(logging.getLogger("inference_client"), lambda: self.now)
        self.log.is_open = True

    def fail(self, broker: str = "a") -> None:
        text = f"[thrd:{broker}:9092/1]: {broker}:9092/1: {REFUSED} (after 2ms in state CONNECT)"
        self.log.log(logging.ERROR, "%s [%s] %s", "FAIL", "inference-client#consumer-1", text)


@pytest.fixture
def heard() -> Heard:
    """A log that is open."""
    return Heard()


def test_a_complaint_that_comes_again_is_counted(heard: Heard, caplog: pytest.LogCaptureFixture) -> None:
    """The first is logged at once, and a later line counts those left out. Each broker has its own count."""
    for broker in "aaab":
        heard.fail(broker)
    heard.now = REPEAT_EVERY
    heard.fail()

    assert caplog.messages == [
        f"FAIL: a:9092/1: {REFUSED}",
        f"FAIL: b:9092/1: {REFUSED}",
        f"FAIL: a:9092/1: {REFUSED} (2 more like it since the last line)",
    ]


def test_before_it_is_open_a_complaint_is_only_kept(heard: Heard, caplog: pytest.LogCaptureFixture) -> None:
    """The error that says why there is no client shows it. The lines that `debug` asks for are written whole."""
    caplog.set_level(logging.DEBUG, "inference_client")
    heard.log.is_open = False

    heard.fail()
    heard.log.log(logging.DEBUG, "%s [%s] %s", "CONNECT", "consumer-1", "[thrd:main]: selected")

    assert heard.log.last == f"a:9092/1: {REFUSED}"
    assert caplog.messages == ["CONNECT [consumer-1] [thrd:main]: selected"]


def test_a_setting_of_the_other_client_is_no_complaint(heard: Heard, caplog: pytest.LogCaptureFixture) -> None:
    """Both clients get all settings. Other complaints about settings are logged."""
    for said in (
        "property compression.codec is a producer property and will be ignored by this consumer instance",
        "property group.id is a consumer property and will be ignored by this producer instance",
        "property `sasl.mechanism` set to `PLAIN` but `security.protocol` is not configured for SASL",
    ):
        text = f"[thrd:app]: Configuration {said}"
        heard.log.log(logging.WARNING, "%s [%s] %s", "CONFWARN", "inference-client#consumer-1", text)

    assert caplog.messages == [f"CONFWARN: Configuration {said}"]
    assert heard.log.last == f"Configuration {said}"
