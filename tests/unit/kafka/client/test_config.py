"""The configuration of the Kafka clients, and the keys that may not be passed through."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from worker.kafka.client.config import (
    DENIED,
    admin_config,
    consumer_config,
    denied_keys,
    poll_interval,
    producer_config,
    transaction_config,
)
from worker.kafka.client.membership import Membership
from worker.settings import KafkaSettings

CONSUMER = Membership("consumer", "test")
CLASSIC = Membership("classic", "test")


def settings(**changes: object) -> KafkaSettings:
    base = {"bootstrap_servers": "127.0.0.1:9092", "request_topics": "r", "response_topic": "a", "group_id": "g"}
    return KafkaSettings.model_validate({**base, **changes})


def test_the_consumer_commits_nothing_by_itself() -> None:
    """Only offsets from the ledger are ever committed."""
    config = consumer_config(settings(), CONSUMER)

    assert config["enable.auto.commit"] is False
    assert config["enable.auto.offset.store"] is False
    assert config["auto.offset.reset"] == "earliest"
    assert consumer_config(settings(auto_offset_reset="latest"), CONSUMER)["auto.offset.reset"] == "latest"
    assert config["isolation.level"] == "read_committed"
    assert config["check.crcs"] is False, "it would read on at the wrong place"
    assert config["allow.auto.create.topics"] is False
    assert config["statistics.interval.ms"] == 1_000
    assert int(config["receive.message.max.bytes"]) >= 3 * 2_000 * 58 * 1024, "the client trebles the room it takes"


def test_sessions_are_the_brokers_or_ours_by_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka refuses a configuration with both. A short session has three heartbeats: two may get lost."""
    monkeypatch.setattr(socket, "gethostname", lambda: "worker-0")
    new = consumer_config(settings(), CONSUMER)
    classic = consumer_config(settings(session_timeout_ms=1500, group_instance_id="a-{hostname}"), CLASSIC)

    assert new["group.protocol"] == "consumer"
    assert not {"session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"} & set(new)
    assert (classic["session.timeout.ms"], classic["heartbeat.interval.ms"]) == (1500, 500)
    assert classic["partition.assignment.strategy"] == "cooperative-sticky"
    assert classic["group.instance.id"] == "a-worker-0"


def test_the_producer_waits_for_ever_and_fits_every_topic() -> None:
    """Messages do not expire, and no batch is larger than the smallest topic takes."""
    config = producer_config(settings(), message_bytes=2_000_000, batch_bytes=50_000)

    assert config["enable.idempotence"] is True
    assert config["acks"] == "all"
    assert config["message.timeout.ms"] == 0
    assert (config["message.max.bytes"], config["batch.size"]) == (2_000_000, 50_000)
    assert producer_config(settings(), 100, 5_000_000)["message.max.bytes"] == 1_000, "the least librdkafka takes"


def test_a_producer_of_transactions_waits_no_longer_than_they_last() -> None:
    """The broker then aborts the transaction, and its requests are read again. Other settings stay as they are."""
    config = transaction_config(settings(), "worker-0", 5_000, message_bytes=2_000_000, batch_bytes=50_000)

    assert (config["transactional.id"], config["transaction.timeout.ms"]) == ("worker-0", 5_000)
    assert config["message.timeout.ms"] == 5_000
    assert config["delivery.report.only.error"] is True
    without = producer_config(settings(), message_bytes=2_000_000, batch_bytes=50_000)
    assert without["enable.gapless.guarantee"] is True  # a transaction is aborted as a whole
    differing = {"message.timeout.ms", "enable.gapless.guarantee"}
    assert config == {
        **{key: value for key, value in without.items() if key not in differing},
        **{key: config[key] for key in config if key not in without or key in differing},
    }


def test_operators_may_tune_every_client() -> None:
    """A passed-through key wins over our own choice."""
    kafka = settings(config={"linger.ms": "20", "client.id": "mine", "queued.min.messages": "7"})

    assert producer_config(kafka, 1000, 1000)["linger.ms"] == "20"
    assert transaction_config(kafka, "worker-0", 10_000, 1000, 1000)["linger.ms"] == "20"
    assert consumer_config(kafka, CONSUMER)["queued.min.messages"] == "7"
    assert admin_config(kafka)["client.id"] == "mine"


def test_how_often_a_member_must_poll_is_no_matter_of_clients_outside_the_group() -> None:
    """They have the default session, and a client with a longer one cannot be made."""
    often = settings(config={"max.poll.interval.ms": "3000"})

    assert consumer_config(often, CLASSIC)["max.poll.interval.ms"] == "3000"
    assert (poll_interval(often), poll_interval(settings())) == (3.0, 300.0)
    Consumer({**admin_config(often), "group.id": "outside"}).close()


@pytest.mark.parametrize(
    "key",
    [
        *(key for key in DENIED if "*" not in key),
        "test.mock.num.brokers",
        "ut_x",
        "stats_cb",
        "auto.commit.enable",
        "topic.acks",
        "topic.auto.offset.reset",
    ],
)
def test_a_promise_cannot_be_configured_away(key: str) -> None:
    """Each denied key gets one line that names it and says why."""
    (line,) = denied_keys(settings(config={key: "1"}))

    assert line.startswith(f"WORKER_KAFKA__CONFIG: {key} is not passed through, ")
    assert line.endswith("; remove it")


def test_a_password_reaches_the_client_and_no_text(tmp_path: Path) -> None:
    """Secrets leave the settings only in the dictionary for the client."""
    key = tmp_path / "key.pem"
    kafka = settings(
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="worker",
        sasl_password="very-secret",  # noqa: S106  # of no real user
        ssl_key_location=key,
        ssl_key_password="also-secret",  # noqa: S106  # of no real user
    )

    config = admin_config(kafka)

    assert config["security.protocol"] == "SASL_SSL"
    assert (config["sasl.mechanism"], config["sasl.username"]) == ("SCRAM-SHA-512", "worker")
    assert (config["sasl.password"], config["ssl.key.password"]) == ("very-secret", "also-secret")
    assert config["ssl.key.location"] == str(key)
    assert "enable.ssl.certificate.verification" not in config
    assert "very-secret" not in repr(kafka)
    assert "also-secret" not in repr(kafka)


def test_tokens_come_from_the_identity_provider() -> None:
    """OAUTHBEARER means OIDC: the client fetches and renews its tokens. Certificates go unchecked only on request."""
    kafka = settings(
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        oauth_token_endpoint_url="https://id.example/token",  # noqa: S106  # of no real user
        oauth_client_id="worker",
        oauth_client_secret="s",  # noqa: S106  # of no real user
        insecure_tls=True,
    )

    config = admin_config(kafka)

    assert config["sasl.oauthbearer.method"] == "oidc"
    assert config["sasl.oauthbearer.token.endpoint.url"] == "https://id.example/token"
    assert config["sasl.oauthbearer.client.secret"] == "s"
    assert config["enable.ssl.certificate.verification"] is False
