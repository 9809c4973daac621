"""Two clocks that are apart, told by the timestamp of an answer that says a request was late.

A request's time counts from its timestamp, which this machine's clock gives, to the clock of the worker. Where this
one is behind, each request is late when it is sent. No answer is read before it was written, so its timestamp shows it.
"""

from __future__ import annotations

from datetime import UTC, datetime

from inference_client.errors import DeadlineExceeded

SLACK = 0.1  # seconds; clocks that are kept together differ by some hundredths
_BY_BROKER = 2  # Kafka's word for a timestamp that the broker gave, the topic's `LogAppendTime`


def doubted(error: DeadlineExceeded, stamp: tuple[int, int], now: float) -> DeadlineExceeded:
    """The error, with what both clocks say where this one is behind. `stamp`: its kind, and milliseconds since 1970."""
    kind, written = stamp[0], stamp[1] / 1000
    ahead = written - now
    if ahead < SLACK:
        return error
    whose = "the brokers'" if kind == _BY_BROKER else "the worker's"
    try:
        clocks = f"it was {shown(written)} by {whose} clock when this was answered, and is {shown(now)} here"
    except (ValueError, OverflowError, OSError):  # a time that no calendar has
        return error
    cure = f"a clock that is {ahead:.1f} s behind takes as much of each timeout; set this machine's, or {whose}"
    return DeadlineExceeded(f"{error.message}; {clocks}: {cure}", error.source, error.code)


def shown(seconds: float) -> str:
    """For a person. Raises `ValueError`, `OverflowError` and `OSError` for what no calendar has."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
