"""What a replica tells its group that it serves, and what another makes of it."""

from __future__ import annotations

import pytest

from tests.unit.kafka.client.test_config import settings
from worker.kafka.client.announcement import Announcement, Member, differing
from worker.kafka.client.config import consumer_config
from worker.kafka.client.membership import choose_membership, fall_back
from worker.kafka.cluster.examination import Topics

OWN = Announcement.of("digits", "1", "3f9a2b1c" * 8, "77aa01ff" * 8)
CURE = "unless one is just being rolled out in the place of the other"


def said(*others: Announcement, host: str = "/10.0.0.7") -> list[str]:
    return differing(OWN, "g", [Member(other.client_id, host) for other in others])


@pytest.mark.parametrize("name", ["digits", "Größe / 2", "a" * 500, ""])
def test_a_client_id_is_read_as_it_was_written(name: str) -> None:
    """In letters that Kafka's quotas and metrics take, and short."""
    written = Announcement.of(name, "1.0-rc1", "3f9a2b1c" * 8, "")

    assert Announcement.read(written.client_id) == written
    assert len(written.client_id) < 200
    assert written.client_id.isascii()
    assert " " not in written.client_id


def test_the_client_id_has_what_people_compare() -> None:
    """The digest's beginning is that of `sha256sum`."""
    assert OWN.client_id == "inference-worker/digits/1/3f9a2b1c/77aa01ff"


@pytest.mark.parametrize("client_id", ["inference-worker", "rdkafka", "", "inference-worker/a/b", "other/a/1/f/w"])
def test_another_client_is_no_replica(client_id: str) -> None:
    """A worker of an older version, one whose client id an operator has chosen, another program."""
    assert Announcement.read(client_id) is None
    assert differing(OWN, "g", [Member(client_id, "/10.0.0.7")]) == []


def test_replicas_of_one_deployment_are_no_news() -> None:
    """However many."""
    assert said(OWN, OWN) == []


def test_another_model_is_named_with_its_hosts() -> None:
    """And what to do."""
    fraud = OWN._replace(name="fraud")

    (alone,) = said(fraud)
    (several,) = differing(OWN, "g", [Member(fraud.client_id, f"/10.0.0.{n}") for n in (5, 4, 3, 2)])

    assert alone == (
        "group g: 1 other member (on 10.0.0.7) serves fraud 1 (3f9a2b1c), this worker digits 1 (3f9a2b1c): which of "
        "them answers a request is up to its partition; give each model a group of its own (WORKER_KAFKA__GROUP_ID), "
        f"{CURE}"
    )
    assert "4 other members (on 10.0.0.2, 10.0.0.3, 10.0.0.4) serve fraud 1" in several


def test_another_version_is_another_model() -> None:
    """Also under the same name; for a minute that is a roll-out."""
    (sentence,) = said(OWN._replace(version="2"))

    assert "serves digits 2 (3f9a2b1c), this worker digits 1 (3f9a2b1c)" in sentence
    assert "give each model a group of its own" in sentence
    assert sentence.endswith(CURE)


def test_another_file_under_the_same_version_is_told_as_such() -> None:
    """A file that was overwritten is picked up by the next start, and no answer's version would tell."""
    (sentence,) = said(OWN._replace(file="00000000"))

    assert (
        "serves digits 1 (00000000), this worker digits 1 (3f9a2b1c): another file under the same version" in sentence
    )
    assert "give each file a version of its own (WORKER_MODEL__VERSION)" in sentence
    assert sentence.endswith(CURE)


def test_other_settings_of_the_same_model_are_told_apart_from_another_model() -> None:
    """The cure is another."""
    (sentence,) = said(OWN._replace(wire="00000000"))

    assert "serves digits 1 (3f9a2b1c) by other settings of what requests and answers are" in sentence
    assert "give all replicas the same settings" in sentence


def test_a_file_that_cannot_be_read_is_said_to_be_so() -> None:
    """Its worker will not start, and is in the group no more by then."""
    assert str(Announcement.of("digits", "1", "", "")) == "digits 1 (a file that cannot be read)"


def test_a_worker_joins_under_what_it_announces() -> None:
    """Also where it falls back to the classic protocol; an operator's own client id goes before it."""
    topics = Topics({}, {}, choose_membership(settings(), 3.0)).announcing(OWN.client_id)
    mine = settings(config={"client.id": "mine"})

    for membership in (topics.membership, fall_back(topics.membership, "no")):
        assert consumer_config(settings(), membership)["client.id"] == OWN.client_id
        assert consumer_config(mine, membership)["client.id"] == "mine"


def test_only_those_who_came_since_are_newcomers() -> None:
    """What others like them serve was said before."""
    known, new = (Member(OWN._replace(name=name).client_id, "/10.0.0.7") for name in ("fraud", "spam"))
    topics = Topics({}, {}, choose_membership(settings(), 3.0), members=(known,)).announcing(OWN.client_id)

    (sentence,) = topics.newcomers([known, new, Member(OWN.client_id, "/10.0.0.8")]).others("g")

    assert "serves spam 1" in sentence


def test_what_members_serve_is_held_against_what_is_announced() -> None:
    """Before anything is, nothing is."""
    other = Member(OWN._replace(name="fraud").client_id, "/10.0.0.7")
    topics = Topics({}, {}, choose_membership(settings(), 3.0), members=(other,))

    assert topics.others("g") == []
    assert len(topics.announcing(OWN.client_id).others("g")) == 1
