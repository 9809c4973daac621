"""How a worker belongs to its group, and what replicas make of each other's announcements."""

from __future__ import annotations

import pytest

from tests.unit.kafka.client.test_config import settings
from worker.kafka.client.config import consumer_config
from worker.kafka.client.membership import Announcement, Member, choose_membership, differing, fall_back
from worker.kafka.cluster.topics import Topics

OWN = Announcement.of("digits", "1", "3f9a2b1c" * 8, "77aa01ff" * 8)


@pytest.mark.parametrize(
    ("changes", "protocol", "seconds"),
    [
        ({}, "consumer", 3.0),
        ({"group_protocol": "consumer"}, "consumer", 3.0),
        ({"group_protocol": "classic"}, "classic", 45.0),
        ({"session_timeout_ms": 6000}, "classic", 6.0),
        ({"group_instance_id": "replica-0"}, "classic", 45.0),
        ({"group_protocol": "consumer", "group_instance_id": "replica-0"}, "consumer", 3.0),
    ],
)
def test_the_protocol_follows_from_the_settings(changes: dict[str, object], protocol: str, seconds: float) -> None:
    """KIP-848, unless a setting of the classic protocol is in use or it was chosen. A line says which, and why."""
    membership = choose_membership(settings(**changes), group_sessions=3.0)

    assert (membership.protocol, membership.takeover_seconds) == (protocol, seconds)
    assert str(membership).endswith(f"move after {seconds:g} s")


def test_a_broker_before_kip_848_gets_a_classic_member() -> None:
    """Unless the operator insists. One that has it switched off says so when it is joined."""
    auto = choose_membership(settings(), None, is_absent=True)
    insisted = choose_membership(settings(group_protocol="consumer"), None, is_absent=True)

    assert (auto.protocol, insisted.protocol) == ("classic", "consumer")
    assert "after an unknown time" in str(insisted)
    assert fall_back(choose_membership(settings(), 3.0), "API version not supported").protocol == "classic"


@pytest.mark.parametrize("name", ["digits", "Größe / 2", "a" * 500, ""])
def test_a_client_id_is_read_as_it_was_written(name: str) -> None:
    """In letters that Kafka's quotas and metrics take, and short."""
    written = Announcement.of(name, "1.0-rc1", "3f9a2b1c" * 8, "")

    assert Announcement.read(written.client_id) == written
    assert len(written.client_id) < 200
    assert written.client_id.isascii()
    assert " " not in written.client_id
    assert OWN.client_id == "inference-worker/digits/1/3f9a2b1c/77aa01ff", "the digest's beginning is sha256sum's"


@pytest.mark.parametrize("client_id", ["inference-worker", "", "inference-worker/a/b", "other/a/1/f/w", OWN.client_id])
def test_others_that_are_no_other_replica_are_no_news(client_id: str) -> None:
    """One whose client id an operator has chosen, another program, a replica of the same deployment."""
    assert differing(OWN, "g", [Member(client_id, "/10.0.0.7")]) == []


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"name": "fraud"}, "serve fraud 1 (3f9a2b1c), this worker digits 1 (3f9a2b1c), with another model"),
        ({"version": "2"}, "serve digits 2 (3f9a2b1c), this worker digits 1 (3f9a2b1c), with another model"),
        ({"file": ""}, "serve digits 1 (a file that cannot be read), this worker"),
        ({"wire": "0" * 8}, "serve digits 1 (3f9a2b1c), .*with other settings of requests and answers"),
    ],
)
def test_another_thing_that_is_served_is_told_with_its_cure(other: dict[str, str], told: str) -> None:
    """A roll-out is no trouble: that is said, too."""
    sentences = differing(OWN, "g", [Member(OWN._replace(**other).client_id, f"/10.0.0.{n}") for n in (4, 3, 2, 1)])
    (alone,) = differing(OWN, "g", [Member(OWN._replace(**other).client_id, "/10.0.0.7")])

    assert "members on 10.0.0.1, 10.0.0.2, 10.0.0.3 (4 in all) serve " in sentences[0]
    assert alone.startswith("group g: members on 10.0.0.7 (1 in all) serve ")
    assert "unless a roll-out is under way" in alone
    for part in told.split(".*"):
        assert part.strip() in alone


def test_a_worker_joins_under_its_announcement() -> None:
    """Also where it falls back to the classic protocol; an operator's own client id goes before it."""
    topics = Topics({}, {}, choose_membership(settings(), 3.0)).announcing(OWN.client_id)
    mine = settings(config={"client.id": "mine"})

    for membership in (topics.membership, fall_back(topics.membership, "no")):
        assert consumer_config(settings(), membership)["client.id"] == OWN.client_id
        assert consumer_config(mine, membership)["client.id"] == "mine"


def test_members_are_held_against_the_announcement() -> None:
    """Before anything is announced, nothing is."""
    fraud = Member(OWN._replace(name="fraud").client_id, "/10.0.0.7")
    topics = Topics({}, {}, choose_membership(settings(), 3.0), members=(fraud,))

    assert topics.others("g") == []
    announced = topics.announcing(OWN.client_id)
    (sentence,) = announced.others("g")
    assert "serve fraud 1" in sentence
