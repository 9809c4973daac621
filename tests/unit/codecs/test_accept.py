"""Which encodings an `accept` header admits."""

from __future__ import annotations

import pytest

from worker.codecs.replies import admitted
from worker.codecs.wire_contract import JSON, OCTETS, PROTOBUF


@pytest.mark.parametrize(
    ("accept", "best_first"),
    [
        ("*/*", (PROTOBUF, JSON, OCTETS)),
        ("application/*", (PROTOBUF, JSON, OCTETS)),
        (JSON, (JSON,)),
        (f'"{JSON}"', (JSON,)),
        ("Application/JSON; charset=utf-8", (JSON,)),
        (f"{JSON}, {OCTETS}", (JSON, OCTETS)),
        (f"{JSON};q=0.5, {OCTETS}", (OCTETS, JSON)),
        (f"{OCTETS}, */*;q=0.1", (OCTETS, PROTOBUF, JSON)),
        (f"{PROTOBUF};q=0, */*", (JSON, OCTETS)),
        (f"text/html, {JSON};q=0.001", (JSON,)),
        (f"{JSON};q=1.5", (JSON,)),
        (f" , {JSON} ,", (JSON,)),
        (f"{JSON};q=much", ()),
        ("text/html", ()),
        ("*/*;q=0", ()),
    ],
)
def test_the_best_comes_first_and_the_requests_own_wins_a_tie(accept: str, best_first: tuple[str, ...]) -> None:
    """For a request in protobuf."""
    assert admitted(accept, PROTOBUF) == best_first
