"""Log lines: one format for all, and no secret in any."""

import io
import json
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from worker.telemetry.logs import REDACTED, cleaned, configure, kafka_logger, printable


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield io.StringIO()
    root.handlers[:], root.level = handlers, level
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_fact_is_one_json_object(stream: io.StringIO) -> None:
    """With its level and its time in UTC."""
    configure("json", "INFO", stream)

    structlog.get_logger().info("batch_closed", rows=32, by="linger")

    (line,) = lines(stream)
    assert (line["event"], line["level"], line["rows"], line["by"]) == ("batch_closed", "info", 32, "linger")
    assert line["at"].endswith("Z")


def test_people_get_text(stream: io.StringIO) -> None:
    """On the console format."""
    configure("console", "INFO", stream)

    structlog.get_logger().warning("commits_failed", count=2)

    assert "commits_failed" in stream.getvalue()
    assert "count=2" in stream.getvalue()


def test_what_is_below_the_level_is_not_written(stream: io.StringIO) -> None:
    """By us or by the libraries."""
    configure("json", "WARNING", stream)

    structlog.get_logger().info("partitions_assigned")
    kafka_logger().info("%s", "connected")

    assert lines(stream) == []


def test_the_kafka_client_s_lines_come_out_with_ours(stream: io.StringIO) -> None:
    """Under the client's name."""
    configure("json", "INFO", stream)

    kafka_logger().log(logging.WARNING, "%s [%s] %s", "FAIL", "rdkafka#consumer-1", "connection refused")

    (line,) = lines(stream)
    assert line["event"] == "FAIL [rdkafka#consumer-1] connection refused"
    assert (line["logger"], line["level"]) == ("librdkafka", "warning")


def test_fields_named_like_secrets_are_blanked(stream: io.StringIO) -> None:
    """However deep they lie."""
    configure("json", "INFO", stream)

    structlog.get_logger().info(
        "configured", **{"sasl.password": "a1"}, config={"ssl.key.pem": "b2", "rows": 3}, tokens=["c3"]
    )

    assert not any(secret in stream.getvalue() for secret in ("a1", "b2", "c3"))
    assert lines(stream)[0]["config"] == {"ssl.key.pem": REDACTED, "rows": 3}


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
    """A library quotes its own configuration in messages; other text stays as it is."""
    configure("json", "INFO", stream)

    kafka_logger().error("%s", text)

    assert lines(stream)[0]["event"] == shown


@pytest.mark.parametrize(
    "word", ["password", "key.", "token", "key ", "a", "://a", "'\\", "-----BEGIN A", "=", "key=' "]
)
def test_a_text_takes_no_more_than_its_length(word: str) -> None:
    """Or what a model quotes of a request would hold the loop up: 160 KB of the first took 166 s."""
    began = time.process_time()

    cleaned(word * (200_000 // len(word)))

    assert time.process_time() - began < 5.0


def test_an_exception_is_part_of_its_line(stream: io.StringIO) -> None:
    """With its trace, still one line."""
    configure("json", "INFO", stream)

    try:
        int("no such thing")
    except ValueError:
        structlog.get_logger().exception("failed")

    (line,) = lines(stream)
    assert "no such thing" in line["exception"]


def test_somebody_else_s_text_stays_short_and_on_its_line() -> None:
    """A publisher chooses the request id."""
    assert printable("plain") == "plain"
    assert printable("a\nb\x1b[0m\u2028") == "a\\nb\\x1b[0m\\u2028"
    assert printable("x" * 300, longest=10) == "xxxxxxxxx…"


def test_what_is_counted_by_name_keeps_its_number_and_no_secret(stream: io.StringIO) -> None:
    """Topics and reasons stand as names in a field: one with a key or a token in it is no secret, a password is."""
    configure("json", "INFO", stream)

    structlog.get_logger().info("x", counts={"payment-tokens": 12, "sasl.password=hunter2 is wrong": 3})

    assert lines(stream)[0]["counts"] == {"payment-tokens": 12, "sasl.password=[redacted] is wrong": 3}
