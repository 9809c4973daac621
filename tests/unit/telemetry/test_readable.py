"""Log lines for people: short in a terminal, whole everywhere."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator

import pytest
import structlog

from worker.telemetry.logs import configure, kafka_logger

COMMAND = "inference-worker dead-letters show requests/0/17"


class Screen(io.StringIO):
    """A terminal, as far as a stream tells."""

    def isatty(self) -> bool:
        return True

    @property
    def plain(self) -> list[str]:
        """Its lines without colours."""
        return re.sub(r"\x1b\[\d*m", "", self.getvalue()).splitlines()


@pytest.fixture
def screen() -> Iterator[Screen]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield Screen()
    root.handlers[:], root.level = handlers, level
    structlog.reset_defaults()


@pytest.mark.parametrize(
    ("log_format", "is_terminal", "is_json", "is_watched"),
    [
        ("auto", True, False, True),
        ("auto", False, True, False),
        ("json", True, True, False),
        ("console", True, False, True),
        ("console", False, False, False),
    ],
)
def test_lines_are_readable_in_a_terminal_and_json_elsewhere(
    log_format: str,
    is_terminal: bool,  # noqa: FBT001 - a case
    is_json: bool,  # noqa: FBT001 - a case
    is_watched: bool,  # noqa: FBT001 - a case
    screen: Screen,
) -> None:
    """Unless a format is set. Only where a person reads along there is more to say than the log."""
    stream = screen if is_terminal else io.StringIO()

    watched = configure(log_format, "INFO", stream)  # type: ignore[arg-type]  # a case
    structlog.get_logger().info("stopped")

    assert watched == is_watched
    assert stream.getvalue().startswith("{") == is_json


def test_short_fields_share_a_line_and_sentences_have_their_own(screen: Screen) -> None:
    """So that 80 columns do, and a command can be copied whole."""
    configure("auto", "INFO", screen)

    structlog.get_logger().warning(
        "requests_rejected",
        count=3,
        reasons={"NOT_FOUND": 2},
        page=None,
        next=COMMAND,
        held=["requests/0", "requests/1"],
    )

    first, second = screen.plain
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d  warning: requests_rejected  count=3 reasons=NOT_FOUND:2 held=requests/0,requests/1", first
    )
    assert second == f"          next: {COMMAND}"


def test_a_fact_that_is_only_information_needs_no_level(screen: Screen) -> None:
    """And no field."""
    configure("auto", "INFO", screen)

    structlog.get_logger().info("fetching_resumed")

    assert screen.plain[0].endswith("  fetching_resumed")
    assert "\x1b" not in screen.getvalue()


def test_a_long_list_is_told_by_its_ends(screen: Screen) -> None:
    """Its length stands beside it, in the facts that have one. Out of a terminal it is whole."""
    file = io.StringIO()
    for stream in (screen, file):
        configure("console", "INFO", stream)
        structlog.get_logger().info("partitions_assigned", partitions=[f"requests/{n}" for n in range(12)], held=12)

    assert screen.plain[0].endswith("  partitions=requests/0,requests/1,…,requests/11 held=12")
    assert "requests/9,requests/10,requests/11 held=12" in file.getvalue()


def test_elsewhere_a_fact_keeps_to_its_line_with_date_and_zone() -> None:
    """A file is searched line by line, and read on another day."""
    stream = io.StringIO()
    configure("console", "INFO", stream)

    structlog.get_logger().error("stopped", exit_code=4, reason="the brokers refuse us")

    assert re.fullmatch(
        r"20\d\d-\d\d-\d\dT[\d:.]+Z  error: stopped  exit_code=4 reason=the brokers refuse us\n", stream.getvalue()
    )


def test_nothing_of_others_reaches_a_terminal_raw(screen: Screen) -> None:
    """No broker and no publisher clears a screen, or writes a line that looks like ours."""
    configure("auto", "INFO", screen)

    kafka_logger().error("%s", "evil\x1b]0;pwned\x07\n12:00:00  stopped")
    structlog.get_logger().info("seen", by="evil\x9b2J", names={"evil\r": 1}, each=["evil\x1bc"])

    assert screen.plain[0].endswith("error: evil\\x1b]0;pwned\\x07\\n12:00:00  stopped  logger=librdkafka")
    assert screen.plain[1].endswith("seen  by=evil\\x9b2J names=evil\\r:1 each=evil\\x1bc")


def test_a_defect_keeps_its_trace(screen: Screen) -> None:
    """Line by line."""
    configure("auto", "INFO", screen)

    try:
        int("no such thing")
    except ValueError:
        structlog.get_logger().exception("failed")

    assert screen.plain[0].endswith("error: failed")
    assert screen.plain[1] == "Traceback (most recent call last):"
    assert "no such thing" in screen.plain[-1]
