"""A worker's membership in its group."""

from __future__ import annotations

import pytest

from tests.unit.kafka.client.test_config import settings
from worker.kafka.client.membership import choose_membership


@pytest.mark.parametrize(
    ("changes", "protocol"),
    [
        ({}, "consumer"),
        ({"group_protocol": "consumer"}, "consumer"),
        ({"group_protocol": "classic"}, "classic"),
        ({"session_timeout_ms": 6000}, "classic"),
        ({"group_instance_id": "replica-0"}, "classic"),
        ({"group_protocol": "consumer", "group_instance_id": "replica-0"}, "consumer"),
    ],
)
def test_the_protocol_follows_from_the_settings(changes: dict[str, object], protocol: str) -> None:
    """It is KIP-848, unless the classic protocol was chosen or one of its settings is in use."""
    assert choose_membership(settings(**changes)).protocol == protocol


def test_a_broker_before_kip_848_gets_a_classic_member() -> None:
    """An operator may insist on KIP-848; a broker where it is switched off refuses the join. A line says why."""
    auto = choose_membership(settings(), is_absent=True)
    insisted = choose_membership(settings(group_protocol="consumer"), is_absent=True)

    assert str(auto) == "group protocol classic (the broker has no KIP-848)"
    assert insisted.protocol == "consumer"
