"""TLS, logins and access rules on a real broker: what is enough works, and what is missing is named.

Rights are granted from the one table of `worker.kafka.cluster.access`, which the deploy guide lists.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kafka.cluster import MORTAL
from tests.kafka.fixtures import or_skip
from tests.kafka.guarded import PASSWORD, GuardedKafka, Settings
from tests.kafka.scene import Scene, raw
from worker.commands.check.command import examined
from worker.core.failures import BadConfiguration
from worker.kafka.client.connecting import connect
from worker.kafka.client.transactional_id import resolve_transactional_id
from worker.kafka.cluster.access import Right, needed, needed_for_transactions, wished
from worker.settings import KafkaSettings, load

# What a broker that is merely away is given, and what is well below: no machine is so slow.
PATIENCE, SOON = 60.0, 30.0


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedKafka]:
    """One broker for all of them."""
    kafka = or_skip(lambda: GuardedKafka(tmp_path_factory.mktemp("certificates")))
    yield kafka
    kafka.remove()


def section(settings: Settings) -> KafkaSettings:
    """A worker's Kafka section; topics, group and model are made up unless they are given."""
    made_up = {"REQUEST_TOPICS": "requests", "RESPONSE_TOPIC": "answers", "GROUP_ID": "g"}
    named = {**{f"KAFKA__{name}": value for name, value in made_up.items()}, "MODEL__PATH": "model.onnx", **settings}
    return load(None, {f"WORKER_{name}": value for name, value in named.items()}).kafka


# Enough


EXACTLY_ONCE = {"DELIVERY__GUARANTEE": "exactly_once"}


@pytest.mark.parametrize(
    ("door", "guarantee"),
    [(GuardedKafka.scram, {}), (GuardedKafka.mutual, {}), (GuardedKafka.scram, EXACTLY_ONCE)],
    ids=["scram", "mutual-tls", "exactly-once"],
)
def test_the_documented_rights_are_enough(
    guarded: GuardedKafka,
    door: Callable[[GuardedKafka], Settings],
    guarantee: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Over TLS, with a password or a certificate: requests are answered, rejected ones dead-lettered."""
    with Scene(guarded.cluster, tmp_path, door(guarded) | guarantee) as scene:
        guarded.grant(rights(scene.settings))
        scene.replica()
        scene.publish([raw(number) for number in range(20)])
        scene.publish([raw(0)._replace(value=b"no row")])

        verdict = scene.verdict()
        letters = scene.dead_letters(1)
        for name, value in scene.settings.items():
            monkeypatch.setenv(f"WORKER_{name}", value)
        report = examined(None)

    assert verdict.lost == [], verdict
    assert len(letters) == 1
    assert (report.exit_code, report.problems) == (0, [])
    assert {warning.command for warning in report.warnings} >= {
        f"kafka-acls.sh --bootstrap-server {scene.settings['KAFKA__BOOTSTRAP_SERVERS']} --add --allow-principal "
        f"{principal(scene.settings)} --operation DescribeConfigs --{right.kind} {right.name}"
        for right in wished(section(scene.settings))
    }


def rights(settings: Settings) -> list[Right]:
    """All that a worker with these settings needs."""
    kafka = section(settings)
    if "DELIVERY__GUARANTEE" not in settings:
        return needed(kafka)
    return [*needed(kafka), needed_for_transactions(resolve_transactional_id(None, kafka.group_id))]


def principal(settings: Settings) -> str:
    return "User:worker" if "KAFKA__SASL_USERNAME" in settings else "'User:<subject of the certificate>'"


def test_the_wished_rights_tell_limits_and_sessions(
    guarded: GuardedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With them nothing is assumed."""
    with Scene(guarded.cluster, tmp_path, guarded.scram(), session=MORTAL) as scene:
        guarded.grant([*needed(section(scene.settings)), *wished(section(scene.settings))])
        for name, value in scene.settings.items():
            monkeypatch.setenv(f"WORKER_{name}", value)

        report = examined(None)

    assert report.problems == []
    assert report.cluster is not None
    assert report.cluster.membership is not None
    assert report.cluster.membership.takeover_seconds == MORTAL
    assert report.cluster.max_bytes == {scene.response_topic: 1_048_588, scene.dead_letter_topic: 4_000_000}
    assert not [warning for warning in report.warnings if warning.command]


# One right missing

NAMED = ["REQUEST_TOPICS", "RESPONSE_TOPIC", "DEAD_LETTER_TOPIC", "GROUP_ID", "TRANSACTIONAL_ID"]


@pytest.mark.parametrize("missing", range(len(NAMED)), ids=NAMED)
def test_each_missing_right_is_named_before_anything_begins(
    guarded: GuardedKafka, missing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`check` and `run` say the same: operation and resource, and exit with 2. `check` adds the line that grants it."""
    with Scene(guarded.cluster, tmp_path, guarded.scram() | EXACTLY_ONCE) as scene:
        granted = rights(scene.settings)
        right = granted.pop(missing)
        guarded.grant(granted)
        replica = scene.start()
        for name, value in scene.settings.items():
            monkeypatch.setenv(f"WORKER_{name}", value)

        report = examined(None)
        code = replica.exit_code()

    (problem,) = report.problems
    assert right.variable.endswith(f"__{NAMED[missing]}")
    assert problem.text.startswith(f"{right.variable}: this client may not ")
    assert problem.text.endswith(f" {right.name}; grant it the operation {right.operation.upper()}")
    assert f"--add --allow-principal User:worker --operation {right.operation} --{right.kind} {right.name}" in (
        problem.command
    )
    assert (report.exit_code, code) == (2, 2)
    assert f"inference-worker: {problem.text}\n" in replica.log


# Not let in


def refusal(settings: Settings) -> str:
    """The one line with which a start is refused, which must come soon and hold no secret."""
    began = time.monotonic()
    with pytest.raises(BadConfiguration) as refused:
        connect(section(settings), logging.getLogger("librdkafka"), PATIENCE, "answers")
    assert time.monotonic() - began < SOON
    assert PASSWORD[:-1] not in str(refused.value)
    (line,) = str(refused.value).splitlines()
    return line


def test_a_wrong_password_is_named_with_the_user(guarded: GuardedKafka) -> None:
    """And with the two settings to look at."""
    line = refusal(guarded.scram(SASL_PASSWORD=PASSWORD[:-1]))

    assert line == (
        f"WORKER_KAFKA__SASL_MECHANISM: the broker at {guarded.broker.addresses['SCRAM']} does not accept the "
        "SCRAM-SHA-512 login of user worker; check WORKER_KAFKA__SASL_USERNAME and WORKER_KAFKA__SASL_PASSWORD"
    )


def test_a_mechanism_that_the_broker_has_not_is_named_with_those_it_has(guarded: GuardedKafka) -> None:
    """So that the next try is right."""
    line = refusal(guarded.scram(SASL_MECHANISM="PLAIN"))

    assert line == (
        f"WORKER_KAFKA__SASL_MECHANISM: the broker at {guarded.broker.addresses['SCRAM']} takes SCRAM-SHA-512, not "
        "PLAIN; set one that it takes"
    )


def test_a_certificate_of_a_stranger_is_told_from_a_bad_one(guarded: GuardedKafka) -> None:
    """Whoever set the wrong authority, or none, hears which file to give."""
    wrong = refusal(guarded.scram(SSL_CA_LOCATION=str(guarded.stranger.path)))
    none = refusal({**guarded.tls("SCRAM"), "KAFKA__SSL_CA_LOCATION": ""})

    at = guarded.broker.addresses["SCRAM"]
    for line, given in ((wrong, f"of {guarded.stranger.path}"), (none, "that this system trusts")):
        assert line.startswith(
            f"WORKER_KAFKA__SECURITY_PROTOCOL: the certificate of the broker at {at} is signed by none"
        )
        assert f" the authorities {given} (" in line
        assert line.endswith("; set WORKER_KAFKA__SSL_CA_LOCATION to a PEM file with the authority that signed it")


def test_an_expired_certificate_and_one_for_another_host_are_told_apart(guarded: GuardedKafka) -> None:
    """librdkafka's own line is the same for both, and blames the authority."""
    expired, misnamed = refusal(guarded.tls("EXPIRED")), refusal(guarded.tls("MISNAMED"))

    assert expired == (
        "WORKER_KAFKA__SECURITY_PROTOCOL: the certificate of the broker at "
        f"{guarded.broker.addresses['EXPIRED']} has expired; renew it on the broker"
    )
    assert misnamed.startswith(
        "WORKER_KAFKA__SECURITY_PROTOCOL: the certificate of the broker at "
        f"{guarded.broker.addresses['MISNAMED']} is not for 127.0.0.1; write the name that it is for in "
        "WORKER_KAFKA__BOOTSTRAP_SERVERS"
    )


def test_a_client_without_a_good_certificate_is_told_what_to_show(guarded: GuardedKafka) -> None:
    """None, or one of an authority that the broker does not know."""
    at = guarded.broker.addresses["MUTUAL"]
    none, foreign = refusal(guarded.tls("MUTUAL")), refusal(guarded.mutual(guarded.impostor))

    assert none == (
        f"WORKER_KAFKA__SSL_CERTIFICATE_LOCATION: the broker at {at} wants a client's certificate; set it and "
        "WORKER_KAFKA__SSL_KEY_LOCATION"
    )
    assert foreign.startswith(
        f"WORKER_KAFKA__SSL_CERTIFICATE_LOCATION: the broker at {at} does not accept {guarded.impostor.certificate}: "
    )


def test_a_client_without_tls_at_a_door_with_it_is_told_so(guarded: GuardedKafka) -> None:
    """The broker just hangs up."""
    at = guarded.broker.addresses["MUTUAL"]

    assert refusal({"KAFKA__BOOTSTRAP_SERVERS": at}) == (
        f"WORKER_KAFKA__SECURITY_PROTOCOL: the listener at {at} closes the connection at the first word without TLS; "
        "set it to SSL or SASL_SSL, or name the port of a listener without TLS"
    )


def test_a_client_with_tls_at_a_door_without_is_told_so(guarded: GuardedKafka) -> None:
    """Both ends wait for a word that they understand."""
    at = guarded.broker.bootstrap_servers
    tls = {**guarded.tls("MUTUAL"), "KAFKA__BOOTSTRAP_SERVERS": at}

    assert refusal(tls) == (
        f"WORKER_KAFKA__SECURITY_PROTOCOL: the listener at {at} speaks no TLS; name the port of one that does, or set "
        "PLAINTEXT"
    )
    assert refusal(guarded.scram(BOOTSTRAP_SERVERS=at)).endswith("or set SASL_PLAINTEXT or PLAINTEXT")


def test_a_login_where_none_is_taken_and_none_where_one_is_wanted_are_told(guarded: GuardedKafka) -> None:
    """The security protocol is the wrong one in both."""
    mutual, scram = guarded.broker.addresses["MUTUAL"], guarded.broker.addresses["SCRAM"]
    too_much = refusal({**guarded.mutual(), **guarded.scram(BOOTSTRAP_SERVERS=mutual)})
    too_little = refusal(guarded.tls("SCRAM"))

    assert too_much.startswith(f"WORKER_KAFKA__SECURITY_PROTOCOL: the listener at {mutual} takes no login; set SSL")
    assert too_little == (
        f"WORKER_KAFKA__SECURITY_PROTOCOL: the listener at {scram} closes the connection at the first request without "
        "a login; set it to SASL_SSL, with WORKER_KAFKA__SASL_MECHANISM and its login"
    )


def test_files_that_do_not_fit_are_named(guarded: GuardedKafka, tmp_path: Path) -> None:
    """Before a connection is tried: what is no certificate, and a key that belongs to another."""
    junk = tmp_path / "junk.pem"
    junk.write_text("no certificate")
    other_key = {**guarded.mutual(), "KAFKA__SSL_KEY_LOCATION": str(guarded.impostor.key)}

    assert refusal(guarded.scram(SSL_CA_LOCATION=str(junk))).startswith(
        f"WORKER_KAFKA__SSL_CA_LOCATION: {junk} cannot be used: "
    )
    assert refusal(other_key).startswith(
        f"WORKER_KAFKA__SSL_KEY_LOCATION: {guarded.impostor.key} cannot be used: key values mismatch"
    )
