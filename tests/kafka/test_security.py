"""TLS, logins and access rules on a real broker: the documented rights are enough, and a missing one is named.

Rights are granted from the one table of `worker.kafka.cluster.topics`, which the deploy guide lists.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kafka.fixtures import or_skip
from tests.kafka.guarded import PASSWORD, GuardedKafka, Settings
from tests.kafka.scene import Scene, raw
from worker.commands.checking import examined
from worker.core.failures import BadConfiguration
from worker.kafka.client.connecting import connect
from worker.kafka.client.membership import resolve_transactional_id
from worker.kafka.cluster.topics import Right, needed, needed_for_transactions, wished
from worker.settings import KafkaSettings, load

# Seconds that an absent broker is given, and a time well below it that even a slow machine keeps.
PATIENCE, SOON = 60.0, 30.0


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedKafka]:
    """One broker for all tests here."""
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
    assert sum("does not tell the size limit" in warning for warning in report.warnings) == len(
        wished(section(scene.settings))
    )


def rights(settings: Settings) -> list[Right]:
    """All rights that a worker with these settings needs."""
    kafka = section(settings)
    if "DELIVERY__GUARANTEE" not in settings:
        return needed(kafka)
    return [*needed(kafka), needed_for_transactions(resolve_transactional_id(None, kafka.group_id))]


def test_the_wished_rights_tell_limits(guarded: GuardedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With these rights the worker assumes nothing."""
    with Scene(guarded.cluster, tmp_path, guarded.scram()) as scene:
        guarded.grant([*needed(section(scene.settings)), *wished(section(scene.settings))])
        for name, value in scene.settings.items():
            monkeypatch.setenv(f"WORKER_{name}", value)

        report = examined(None)

    assert report.problems == []
    assert report.max_bytes == {scene.response_topic: 1_048_588, scene.dead_letter_topic: 4_000_000}
    assert not [warning for warning in report.warnings if "does not tell" in warning]


# One right missing

NAMED = ["REQUEST_TOPICS", "RESPONSE_TOPIC", "DEAD_LETTER_TOPIC", "GROUP_ID", "TRANSACTIONAL_ID"]


@pytest.mark.parametrize("missing", range(len(NAMED)), ids=NAMED)
def test_each_missing_right_is_named_before_anything_begins(
    guarded: GuardedKafka, missing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`check` and `run` both name operation and resource, and exit with 2."""
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
    assert problem.startswith(f"{right.variable}: this client may not ")
    assert problem.endswith(f" {right.name}; grant it the operation {right.operation.upper()}")
    assert (report.exit_code, code) == (2, 2)
    assert f"inference-worker: {problem}\n" in replica.log


# Not let in


@pytest.mark.parametrize(
    ("door", "told"),
    [
        (lambda k: k.scram(SASL_PASSWORD=PASSWORD[:-1]), "SASL_MECHANISM: .* SCRAM-SHA-512 login of user worker"),
        (lambda k: k.scram(SASL_MECHANISM="PLAIN"), "SASL_MECHANISM: .* takes SCRAM-SHA-512, not PLAIN"),
        (lambda k: k.scram(SSL_CA_LOCATION=str(k.stranger.path)), "SSL_CA_LOCATION: .* cannot be verified"),
        (lambda k: {**k.tls("SCRAM"), "KAFKA__SSL_CA_LOCATION": ""}, "SSL_CA_LOCATION: .* cannot be verified"),
        (lambda k: k.tls("EXPIRED"), "SSL_CA_LOCATION: .* has not expired"),
        (lambda k: k.tls("MISNAMED"), "SSL_CA_LOCATION: .* this names 127.0.0.1"),
        (lambda k: k.tls("MUTUAL"), "SSL_CERTIFICATE_LOCATION: .* wants a client's certificate .* gets none"),
        (lambda k: k.mutual(k.impostor), "SSL_CERTIFICATE_LOCATION: .* wants a client's certificate that it trusts"),
        (lambda k: {"KAFKA__BOOTSTRAP_SERVERS": k.broker.addresses["MUTUAL"]}, "SECURITY_PROTOCOL: .* without TLS"),
        (lambda k: k.scram(BOOTSTRAP_SERVERS=k.broker.bootstrap_servers), "SECURITY_PROTOCOL: .* speaks no TLS"),
        (
            lambda k: {**k.mutual(), **k.scram(BOOTSTRAP_SERVERS=k.broker.addresses["MUTUAL"])},
            "SECURITY_PROTOCOL: .* takes no login; set SSL",
        ),
        (lambda k: k.tls("SCRAM"), "SECURITY_PROTOCOL: .* without a login; set it to SASL_SSL"),
        (
            lambda k: {**k.mutual(), "KAFKA__SSL_KEY_LOCATION": str(k.impostor.key)},
            "SSL_KEY_LOCATION: .* cannot be used: key values mismatch",
        ),
    ],
    ids=[
        "password",
        "mechanism",
        "stranger's authority",
        "no authority",
        "expired",
        "misnamed",
        "no certificate",
        "stranger's certificate",
        "TLS wanted",
        "TLS unwanted",
        "login unwanted",
        "login wanted",
        "key of another",
    ],
)
def test_a_door_that_is_closed_names_the_setting_that_opens_it(
    guarded: GuardedKafka, door: Callable[[GuardedKafka], Settings], told: str
) -> None:
    """The error comes soon, in one line, without a secret."""
    began = time.monotonic()

    with pytest.raises(BadConfiguration) as refused:
        connect(section(door(guarded)), logging.getLogger("librdkafka"), PATIENCE, "answers")

    assert time.monotonic() - began < SOON
    assert PASSWORD[:-1] not in str(refused.value)
    (line,) = str(refused.value).splitlines()
    assert re.match(f"WORKER_KAFKA__{told}", line), line
