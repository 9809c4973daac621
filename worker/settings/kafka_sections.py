"""The KAFKA section: the connection to the brokers, which other commands use too, the topics and the group.

The sentences are part of the reference: see `sections.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, PrivateAttr, SecretStr

from worker.settings.value_types import (
    MIB,
    Brokers,
    ContentType,
    NameOfHost,
    Page,
    PassedThrough,
    SaslMechanism,
    Section,
    SecurityProtocol,
    Text,
    TopicName,
    TopicNames,
)

MAX_REQUEST_BYTES = "A longer request value is rejected before it is decoded."
MAX_JSON_BYTES = "The most JSON in a request, or protobuf outside raw_input_contents: tensors may travel as bytes."


class Connection(Section):
    """The connection to the brokers, and our identity there."""

    bootstrap_servers: Brokers = Field(description="Brokers to ask first, `host:port`, comma-separated.")
    security_protocol: SecurityProtocol = Field("PLAINTEXT", description="Security of the connections to the brokers.")
    allow_plaintext: bool = Field(
        False,
        description="Allow unencrypted brokers, token issuer, registry and STATE__STORE elsewhere.",
    )
    insecure_tls: bool = Field(False, description="Accept any certificate. For a test bench only.")
    ssl_ca_location: Path | None = Field(None, description="Authorities to trust, in PEM; else the system's.")
    ssl_certificate_location: Path | None = Field(None, description="Mutual TLS: our certificate, a PEM file.")
    ssl_key_location: Path | None = Field(None, description="Mutual TLS: our private key, a PEM file.")
    ssl_key_password: SecretStr | None = Field(None, description="Mutual TLS: opens the private key.")
    sasl_mechanism: SaslMechanism | None = Field(None, description="How we log in, with a SASL security protocol.")
    sasl_username: Text | None = Field(None, description="PLAIN and SCRAM: the user.")
    sasl_password: SecretStr | None = Field(None, description="PLAIN and SCRAM: the password.")
    oauth_token_endpoint_url: Page | None = Field(None, description="OAUTHBEARER (OIDC): the issuer of tokens.")
    oauth_client_id: Text | None = Field(None, description="OAUTHBEARER (OIDC): the client.")
    oauth_client_secret: SecretStr | None = Field(None, description="OAUTHBEARER (OIDC): the client's secret.")
    config: PassedThrough = Field({}, repr=False, description="Other librdkafka keys: `ssl.crl.location`, …")
    _secret_files: tuple[Path, ...] = PrivateAttr(())  # set where they are read

    @property
    def secret_files(self) -> tuple[Path, ...]:
        """The files that held passwords."""
        return self._secret_files

    @property
    def certificates(self) -> dict[str, Path]:
        """The files of our certificate and key, and of the authorities we trust, by the setting that names each."""
        settings = ("ssl_ca_location", "ssl_certificate_location", "ssl_key_location")
        return {setting: file for setting in settings if (file := getattr(self, setting)) is not None}


class KafkaSettings(Connection):
    """Where requests come from, where answers go, and how the cluster knows us."""

    request_topics: TopicNames = Field(description="Topics to consume, comma-separated.")
    response_topic: TopicName = Field(description="Topic for the answers.")
    reply_topics: TopicNames = Field((), description="Other topics that a request's `reply-topic` may name.")
    dead_letter_topic: TopicName | None = Field(None, description="Topic for the originals of rejected requests.")
    changelog_topic: TopicName | None = Field(
        None, description="With STATE__TENSORS: the compacted topic of the states; else GROUP_ID and `-state`."
    )
    group_id: Text = Field(description="Consumer group. Replicas share it, different models never do.")
    group_instance_id: NameOfHost | None = Field(
        None, description="Static membership: this replica's own name; `{hostname}` in a StatefulSet."
    )
    group_protocol: Literal["auto", "consumer", "classic"] = Field(
        "auto", description="`consumer` is KIP-848; `auto` takes it, unless broker or settings want `classic`."
    )
    session_timeout_ms: int | None = Field(
        None, ge=1000, le=1_800_000, description="Classic groups: silence after which a replica counts as dead."
    )
    auto_offset_reset: Literal["earliest", "latest", "error"] = Field(
        "earliest", description="Where a partition is begun without an offset, or behind what retention deleted."
    )
    max_request_bytes: int = Field(MIB, ge=1, le=1_000_000_000, description=MAX_REQUEST_BYTES)
    max_json_bytes: int = Field(MIB, ge=1, le=1_000_000_000, description=MAX_JSON_BYTES)
    max_message_bytes: int | None = Field(
        None, ge=1024, le=1_000_000_000, description="Size limit of written topics, where the broker hides it."
    )
    default_content_type: ContentType = Field(
        "application/json", description="How a request without the header `content-type` is read."
    )
    rows_headers: Literal["optional", "required"] = Field(
        "optional", description="Whether plain rows must say `datatype` and `rows` in headers, so that none is misread."
    )
    null_value: Literal["reject", "skip"] = Field(
        "reject", description="What a request without a value gets: an error answer, or (compacted topics) nothing."
    )
