"""Host names that anyone could own."""

from __future__ import annotations

import pytest

from worker.core.addresses import can_be_public


@pytest.mark.parametrize(
    ("host", "is_public"),
    [("example.com", True), ("example.com.", True), ("worker", False), ("10.0.0.7", False), ("worker.ns.svc", False)],
)
def test_a_name_with_a_dot_can_be_public(host: str, *, is_public: bool) -> None:
    """An address has one meaning, and public DNS has no name of a cluster."""
    assert can_be_public(host) == is_public
