"""Transactional ids, and the process or group that each belongs to."""

from __future__ import annotations

import socket

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from worker.kafka.client.membership import resolve_transactional_id

NAMES = st.text("ab-@%/4", max_size=5)


def test_without_a_pattern_no_two_processes_share_a_name() -> None:
    """The group's name comes first, so that one access rule covers all of them."""
    first, second = resolve_transactional_id(None, "g"), resolve_transactional_id(None, "g")

    assert first.text != second.text
    assert first.text.startswith("g-")
    assert (first.family, first.is_unique, first.is_stable) == ("g-", True, False)


def test_a_pattern_names_the_host_wherever_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name stays after a restart, so another process may have it too."""
    monkeypatch.setattr(socket, "gethostname", lambda: "worker-0")

    assert resolve_transactional_id("a-{hostname}-{hostname}", "g") == ("a-worker-0-worker-0", "a-", False, True)
    assert resolve_transactional_id("{hostname}", "g") == ("worker-0", "worker-0", False, True)
    assert resolve_transactional_id("fixed", "g") == ("fixed", "fixed", False, True)


@given(st.lists(st.tuples(NAMES, NAMES), min_size=2, max_size=2, unique=True))
@example([("a", "b-c"), ("a-b", "c")])
@example([("a", "b-@c"), ("a-@b", "c")])
@example([("a", "@"), ("a-@", "")])
@example([("a", "%40"), ("a", "@")])
def test_no_two_members_of_whatever_groups_share_a_name(members: list[tuple[str, str]]) -> None:
    """This includes groups whose names begin alike, and one instance name in two groups."""
    (group, instance), (other_group, other_instance) = members

    name = resolve_transactional_id(None, group, instance)

    assert name.text != resolve_transactional_id(None, other_group, other_instance).text


@pytest.mark.parametrize(
    ("pattern", "instance", "head"),
    [(None, None, "g-"), (None, "one", "g-"), ("a-{hostname}", None, "a-"), ("fixed", None, "fixed-")],
)
def test_a_name_to_try_is_never_one_that_serves(pattern: str | None, instance: str | None, head: str) -> None:
    """A first try under a replica's own name would fence that replica off."""
    name = resolve_transactional_id(pattern, "g", instance)

    relative, another = name.relative(), name.relative()
    assert relative.text.startswith(head)
    assert (relative.family, relative.is_unique, relative.is_stable) == (head, True, False)
    assert len({relative.text, another.text, name.text}) == 3
