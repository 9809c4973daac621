"""The names of transactions: whose they are."""

from __future__ import annotations

import socket

import pytest

from worker.kafka.transactional_id import resolve_transactional_id


def test_without_a_pattern_no_two_processes_share_a_name() -> None:
    """The group's name comes first, so that one rule of access covers all of them."""
    first, second = resolve_transactional_id(None, "g"), resolve_transactional_id(None, "g")

    assert first.text != second.text
    assert first.text.startswith("g-")
    assert (first.family, first.is_unique) == ("g-", True)


def test_a_pattern_names_the_host_wherever_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same after a restart, and so it may be somebody else's."""
    monkeypatch.setattr(socket, "gethostname", lambda: "worker-0")

    assert resolve_transactional_id("a-{hostname}-{hostname}", "g") == ("a-worker-0-worker-0", "a-", False)
    assert resolve_transactional_id("{hostname}", "g") == ("worker-0", "worker-0", False)
    assert resolve_transactional_id("fixed", "g") == ("fixed", "fixed", False)


@pytest.mark.parametrize(("pattern", "head"), [(None, "g-"), ("a-{hostname}", "a-"), ("fixed", "fixed-")])
def test_a_name_to_try_is_never_one_that_serves(pattern: str | None, head: str) -> None:
    """To begin with a replica's own name would shut that replica out."""
    name = resolve_transactional_id(pattern, "g")

    relative, another = name.relative(), name.relative()
    assert relative.text.startswith(head)
    assert (relative.family, relative.is_unique) == (head, True)
    assert len({relative.text, another.text, name.text}) == 3
