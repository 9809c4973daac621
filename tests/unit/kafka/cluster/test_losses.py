"""Lost offsets and states of a group, as a start reports them from what the cluster says."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.chunks import P0, P1
from tests.unit.kafka.client.test_config import settings
from worker.core.records import Partition
from worker.kafka.client.membership import Membership
from worker.kafka.cluster import survey
from worker.kafka.cluster.survey import losses
from worker.kafka.cluster.topics import Topics

CLASSIC = Membership("classic", "test")
STATES = Partition("states", 0), Partition("states", 1)


def told(
    monkeypatch: pytest.MonkeyPatch,
    known: Mapping[Partition, int] | None,
    begins: Mapping[Partition, int],
    ends: Mapping[Partition, int],
    *,
    reset: str = "earliest",
    has_members: bool = False,
    can_administer: bool = True,
) -> list[str]:
    kafka = settings(request_topics="requests", auto_offset_reset=reset, changelog_topic="states")
    logs = {at: range(begins.get(at, 0), ends.get(at, 9)) for at in (P0, P1, *STATES)}
    monkeypatch.setattr(survey, "committed", lambda *_: known)
    monkeypatch.setattr(survey, "extents", lambda *_: logs)
    topics = Topics({"requests": 2, "states": 2}, {}, CLASSIC, has_members=has_members, can_administer=can_administer)
    return losses(kafka, topics)


@pytest.mark.parametrize(
    ("reset", "words"), [("earliest", "answered again"), ("latest", "passed over unanswered"), ("error", "ends")]
)
def test_an_offset_that_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, reset: str, words: str) -> None:
    """The line counts the records that the policy decides about."""
    [line] = told(monkeypatch, {P1: 9}, {P0: 2}, {}, reset=reset)

    assert "no offset for 1 of 2 partitions with requests (requests/0), and offsets for 1" in line
    assert "their 7 records" in line
    assert words in line


@pytest.mark.parametrize(
    ("known", "begins", "ends"),
    [
        ({P0: 9, P1: 9}, {}, {}),  # it has all offsets
        ({}, {}, {}),  # the group is new
        ({P1: 9}, {P0: 0}, {P0: 0}),  # nothing has come there yet
        ({P1: 9}, {P0: 9}, {P0: 9}),  # all its records were deleted
        ({P0: 9, P1: 0}, {}, {STATES[1]: 0}),  # no request was answered there
    ],
)
def test_nothing_is_said_of_what_may_be_right(
    monkeypatch: pytest.MonkeyPatch,
    known: Mapping[Partition, int],
    begins: Mapping[Partition, int],
    ends: Mapping[Partition, int],
) -> None:
    """The group has its offsets and states, or never had any."""
    assert told(monkeypatch, known, begins, ends) == []


def test_states_that_are_gone_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A changelog partition is empty although requests were answered, or lacks its beginning."""
    [line] = told(monkeypatch, {P0: 5, P1: 9}, {STATES[0]: 3}, {STATES[1]: 0})

    assert "in 2 of 2 partitions (states/0, states/1)" in line
