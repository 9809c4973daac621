"""A Kafka with access control: TLS with SCRAM, mutual TLS, access rules, and doors with bad certificates.

One broker with a door (listener) for each. Both good doors know their client as User:worker. The administrator comes in
by the plain one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from tests.kafka.broker import JvmBroker
from tests.kafka.certificates import DAY, NOW, Authority, Certificate
from tests.kafka.cluster import TIMEOUT, Cluster
from worker.kafka.cluster.topics import Right

USER, PASSWORD = "worker", "worker-secret"
DOORS = {"SCRAM": "SASL_SSL", "MUTUAL": "SSL", "EXPIRED": "SSL", "MISNAMED": "SSL"}

# Operations as `kafka-acls.sh` spells them, and as the client does.
_OPERATIONS = {
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
}
_KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
}

Settings = dict[str, str]


class GuardedKafka:
    """Owns the broker and its certificates, in `folder`. `cluster` is the administrator's view."""

    def __init__(self, folder: Path) -> None:
        self.authority, self.stranger = Authority(folder, "authority"), Authority(folder, "stranger")
        self.client, self.impostor = self.authority.issue(USER), self.stranger.issue("impostor")
        good = self.authority.issue("broker")
        expired = self.authority.issue("expired", until=NOW - DAY)
        misnamed = self.authority.issue("misnamed", host="kafka.example.com")
        self.broker = JvmBroker(
            {
                **self._door("SCRAM", good),
                **self._door("MUTUAL", good),
                **self._door("EXPIRED", expired),
                **self._door("MISNAMED", misnamed),
                "listener.name.mutual.ssl.client.auth": "required",
                "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/,DEFAULT",
                "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-512",
                "listener.name.scram.scram-sha-512.sasl.jaas.config": (
                    "org.apache.kafka.common.security.scram.ScramLoginModule required;"
                ),
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS",
            },
            doors=DOORS,
            format_options=["--add-scram", f"SCRAM-SHA-512=[name={USER},password={PASSWORD}]"],
        ).start()
        self.cluster = Cluster(self.broker.bootstrap_servers)

    def _door(self, name: str, shown: Certificate) -> Mapping[str, str]:
        prefix = f"listener.name.{name.lower()}.ssl."
        return {
            f"{prefix}keystore.type": "PEM",
            f"{prefix}keystore.location": str(shown.both),
            f"{prefix}truststore.type": "PEM",
            f"{prefix}truststore.location": str(self.authority.path),
        }

    def scram(self, **changes: str) -> Settings:
        """A worker's settings for the door with TLS and SCRAM, with `changes`."""
        return {
            "KAFKA__BOOTSTRAP_SERVERS": self.broker.addresses["SCRAM"],
            "KAFKA__SECURITY_PROTOCOL": "SASL_SSL",
            "KAFKA__SSL_CA_LOCATION": str(self.authority.path),
            "KAFKA__SASL_MECHANISM": "SCRAM-SHA-512",
            "KAFKA__SASL_USERNAME": USER,
            "KAFKA__SASL_PASSWORD": PASSWORD,
            **{f"KAFKA__{name}": value for name, value in changes.items()},
        }

    def mutual(self, shown: Certificate | None = None) -> Settings:
        """A worker's settings for the door with mutual TLS; it shows `shown`, or else its own certificate."""
        shown = shown or self.client
        return {
            **self.tls("MUTUAL"),
            "KAFKA__SSL_CERTIFICATE_LOCATION": str(shown.certificate),
            "KAFKA__SSL_KEY_LOCATION": str(shown.key),
        }

    def tls(self, door: str) -> Settings:
        """Settings for TLS without a login or a certificate."""
        return {
            "KAFKA__BOOTSTRAP_SERVERS": self.broker.addresses[door],
            "KAFKA__SECURITY_PROTOCOL": "SSL",
            "KAFKA__SSL_CA_LOCATION": str(self.authority.path),
        }

    def grant(self, rights: Iterable[Right]) -> None:
        """Give the worker these rights, and return when the broker applies them."""
        self.give([ruled(right) for right in rights])

    def give(self, rules: Collection[AclBinding]) -> None:
        """Add access rules, and return when the broker applies them."""
        for future in self.cluster.admin.create_acls([*rules]).values():
            future.result(TIMEOUT)
        self._wait_until(lambda known: set(rules) <= known)

    def take(self, one: AclBinding) -> None:
        """Remove an access rule, and return when the broker no longer applies it."""
        like = AclBindingFilter(
            one.restype,
            one.name,
            one.resource_pattern_type,
            one.principal,
            one.host,
            one.operation,
            one.permission_type,
        )
        for future in self.cluster.admin.delete_acls([like]).values():
            future.result(TIMEOUT)
        self._wait_until(lambda known: one not in known)

    def _wait_until(self, is_so: Callable[[set[AclBinding]], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT
        while not is_so(self._rules()):
            assert time.monotonic() < deadline, "the broker does not know its access rules"
            time.sleep(0.02)

    def _rules(self) -> set[AclBinding]:
        anything: Any = None  # the client takes None for names, and does not say so in its types
        everything = AclBindingFilter(
            ResourceType.ANY,
            anything,
            ResourcePatternType.ANY,
            anything,
            anything,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        return set(self.cluster.admin.describe_acls(everything).result(TIMEOUT))

    def remove(self) -> None:
        """End the broker."""
        self.broker.remove()


def ruled(right: Right) -> AclBinding:
    """The rule that gives the worker this right."""
    kind, operation = _KINDS[right.kind], _OPERATIONS[right.operation]
    return rule(kind, right.name, operation, is_prefix=right.is_prefix)


def rule(kind: ResourceType, name: str, operation: AclOperation, *, is_prefix: bool = False) -> AclBinding:
    """The rule that allows the worker this operation."""
    pattern = ResourcePatternType.PREFIXED if is_prefix else ResourcePatternType.LITERAL
    return AclBinding(kind, name, pattern, f"User:{USER}", "*", operation, AclPermissionType.ALLOW)
