"""How a worker belongs to its group."""

from __future__ import annotations

import pytest

from tests.unit.kafka.client.test_config import settings
from worker.kafka.client.membership import choose_membership, fall_back


@pytest.mark.parametrize(
    ("changes", "protocol", "seconds"),
    [
        ({}, "consumer", 3.0),
        ({"group_protocol": "consumer"}, "consumer", 3.0),
        ({"group_protocol": "classic"}, "classic", 45.0),
        ({"group_protocol": "classic", "session_timeout_ms": 6000}, "classic", 6.0),
        ({"session_timeout_ms": 6000}, "classic", 6.0),
        ({"group_instance_id": "replica-0"}, "classic", 45.0),
        ({"group_protocol": "consumer", "group_instance_id": "replica-0"}, "consumer", 3.0),
    ],
)
def test_the_protocol_follows_from_the_settings(changes: dict[str, object], protocol: str, seconds: float) -> None:
    """KIP-848, unless a setting of the classic protocol is in use or it was chosen."""
    membership = choose_membership(settings(**changes), group_sessions=3.0)

    assert (membership.protocol, membership.takeover_seconds) == (protocol, seconds)


def test_a_broker_before_kip_848_gets_a_classic_member() -> None:
    """Unless the operator insists."""
    auto = choose_membership(settings(), None, is_absent=True)
    insisted = choose_membership(settings(group_protocol="consumer"), None, is_absent=True)

    assert (auto.protocol, auto.why) == ("classic", "the broker has no KIP-848")
    assert insisted.protocol == "consumer"


def test_one_line_says_which_protocol_why_and_for_how_long() -> None:
    """What an operator wants to know when a replica dies."""
    told = choose_membership(settings(session_timeout_ms=6000), None)
    untold = choose_membership(settings(), None)

    assert str(told) == (
        "group protocol classic (WORKER_KAFKA__SESSION_TIMEOUT_MS is set, which KIP-848 leaves to the broker); "
        "a killed replica's partitions move after 6 s"
    )
    assert "after an unknown time" in str(untold)
    assert fall_back(choose_membership(settings(), 3.0), "API version not supported").protocol == "classic"
