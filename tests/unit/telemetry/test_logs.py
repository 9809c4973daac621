"""Log lines: one format for all, short for people in a terminal, and without secrets."""

from __future__ import annotations

import io
import json
import logging
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from worker.telemetry.logs import REDACTED, cleaned, configure, kafka_logger, our_log, printable

COMMAND = "inference-worker dead-letters show requests/0/17"


class Screen(io.StringIO):
    """A stream that calls itself a terminal."""

    def isatty(self) -> bool:
        return True

    @property
    def plain(self) -> list[str]:
        """The lines without colours."""
        return re.sub(r"\x1b\[\d*m", "", self.getvalue()).splitlines()


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:], root.level = handlers, level


@pytest.fixture
def stream() -> io.StringIO:
    """A stream to which JSON lines are logged."""
    stream = io.StringIO()
    configure("json", "INFO", stream)
    return stream


@pytest.fixture
def screen() -> Screen:
    screen = Screen()
    configure("auto", "INFO", screen)
    return screen


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_fact_is_one_json_object(stream: io.StringIO) -> None:
    """It has its time in UTC, its level and its fields, in this order."""
    our_log().info("partitions_assigned", partitions=["requests/0"], held=1)

    (line,) = lines(stream)
    assert list(line) == ["at", "level", "event", "partitions", "held"]
    assert (line["event"], line["level"], line["held"]) == ("partitions_assigned", "info", 1)
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", line["at"])


def test_the_kafka_client_s_lines_come_out_with_ours(stream: io.StringIO) -> None:
    """They carry the client's name, and a traceback becomes one line."""
    kafka_logger().log(logging.WARNING, "%s [%s] %s", "FAIL", "rdkafka#consumer-1", "connection refused")
    try:
        int("no such thing")
    except ValueError:
        kafka_logger().exception("failed")

    failed, defect = lines(stream)
    assert failed["event"] == "FAIL [rdkafka#consumer-1] connection refused"
    assert (failed["logger"], failed["level"]) == ("librdkafka", "warning")
    assert "no such thing" in defect["exception"]


def test_fields_named_like_secrets_are_blanked(stream: io.StringIO) -> None:
    """They may lie deep. Topics and reasons that are counted by name keep their counts."""
    fields: dict[str, Any] = {"sasl.password": "a1", "config": {"ssl.key.pem": "b2", "rows": 3}, "tokens": ["c3"]}
    our_log().info("configured", **fields)
    our_log().info("x", counts={"payment-tokens": 12, "sasl.password=hunter2 is wrong": 3})

    assert not any(secret in stream.getvalue() for secret in ("a1", "b2", "c3", "hunter2"))
    configured, counted = lines(stream)
    assert configured["config"] == {"ssl.key.pem": REDACTED, "rows": 3}
    assert counted["counts"] == {"payment-tokens": 12, "sasl.password=[redacted] is wrong": 3}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("sasl.password=hunter2, retries=3", "sasl.password=[redacted], retries=3"),
        ('jaas.config: "user pass" set', "jaas.config: [redacted] set"),
        ("ssl.key.password = hunter2", "ssl.key.password = [redacted]"),
        ("client_secret='hunter2'", "client_secret=[redacted]"),
        ("at https://me:hunter2@host/x", "at https://[redacted]@host/x"),
        ("at redis://:hunter2@host/x", "at redis://[redacted]@host/x"),
        ("-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----", "[redacted]"),
        ("monkey=3 tokenless", "monkey=3 tokenless"),
        ("sasl.oauthbearer.assertion.claim.iss=me", "sasl.oauthbearer.assertion.claim.iss=[redacted]"),
        ("sasl.oauthbearer.config=secret=x", "sasl.oauthbearer.config=[redacted]"),
        ("sasl.oauthbearer.extensions=a=b", "sasl.oauthbearer.extensions=[redacted]"),
        ("accessToken=hunter2", "accessToken=[redacted]"),
        ("passwordhash=a1 tokens=b2", "passwordhash=[redacted] tokens=[redacted]"),
        ("AssertionError: expected 3", "AssertionError: expected 3"),
        ("input token_type_ids: expected 3", "input token_type_ids: expected 3"),
        ("input tokens: expected 3", "input tokens: expected 3"),
        ("partition requests/0: 3 records", "partition requests/0: 3 records"),
    ],
)
def test_secrets_inside_a_text_are_blanked(text: str, shown: str, stream: io.StringIO) -> None:
    """A library quotes its own configuration in messages; other text stays."""
    kafka_logger().error("%s", text)

    assert lines(stream)[0]["event"] == shown


@pytest.mark.parametrize(
    "word", ["password", "key.", "token", "key ", "a", "://a", "'\\", "-----BEGIN A", "=", "key=' "]
)
def test_a_text_takes_no_more_than_its_length(word: str) -> None:
    """Otherwise a model's quotation of a request would hold the loop up: 160 KB of the first word took 166 s."""
    began = time.process_time()

    cleaned(word * (200_000 // len(word)))

    assert time.process_time() - began < 5.0


def test_somebody_else_s_text_stays_short_and_on_its_line() -> None:
    """A publisher chooses the request id."""
    assert printable("plain") == "plain"
    assert printable("a\nb\x1b[0m\u2028") == "a\\nb\\x1b[0m\\u2028"
    assert printable("x" * 300, longest=10) == "xxxxxxxxx…"


# For people


@pytest.mark.parametrize(
    ("log_format", "stream", "is_json"),
    [
        ("auto", Screen(), False),
        ("auto", io.StringIO(), True),
        ("json", Screen(), True),
        ("console", Screen(), False),
        ("console", io.StringIO(), False),
    ],
)
def test_lines_are_readable_in_a_terminal_and_json_elsewhere(
    log_format: Any,
    stream: io.StringIO,
    is_json: bool,  # noqa: FBT001 - a case
) -> None:
    """A format that is set overrides this."""
    configure(log_format, "INFO", stream)
    our_log().info("stopped")

    assert stream.getvalue().startswith("{") == is_json


def test_short_fields_share_a_line_and_sentences_have_their_own(screen: Screen) -> None:
    """So a command can be copied whole."""
    our_log().warning("requests_rejected", count=3, reasons={"NOT_FOUND": 2}, page=None, next=COMMAND, held=["a", "b"])
    our_log().info("fetching_resumed")

    first, second, third = screen.plain
    assert re.fullmatch(r"\d\d:\d\d:\d\d  warning: requests_rejected  count=3 reasons=NOT_FOUND:2 held=a,b", first)
    assert second == f"          next: {COMMAND}"
    assert third.endswith("  fetching_resumed")


def test_elsewhere_a_fact_keeps_to_its_line_with_date_and_zone() -> None:
    """A file is searched line by line, and read on another day. Its lists are complete."""
    stream = io.StringIO()
    configure("console", "INFO", stream)

    our_log().error("stopped", exit_code=4, reason="the brokers refuse us", seen=[1, 2, 3, 4, 5])

    assert re.fullmatch(
        r"20\d\d-\d\d-\d\dT[\d:.]+Z  error: stopped  exit_code=4 reason=the brokers refuse us seen=1,2,3,4,5\n",
        stream.getvalue(),
    )


def test_nothing_of_others_reaches_a_terminal_raw(screen: Screen) -> None:
    """No broker or publisher can clear a screen, or fake a line of ours; a traceback keeps its lines."""
    kafka_logger().error("%s", "evil\x1b]0;pwned\x07\n12:00:00  stopped")
    our_log().info("seen", by="evil\x9b2J", names={"evil\r": 1}, each=["evil\x1bc"])
    try:
        int("no such thing")
    except ValueError:
        kafka_logger().exception("failed")

    assert screen.plain[0].endswith("error: evil\\x1b]0;pwned\\x07\\n12:00:00  stopped  logger=librdkafka")
    assert screen.plain[1].endswith("seen  by=evil\\x9b2J names=evil\\r:1 each=evil\\x1bc")
    assert screen.plain[3] == "Traceback (most recent call last):"
    assert "no such thing" in screen.plain[-1]
