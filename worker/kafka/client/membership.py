"""How this worker belongs to its consumer group: which protocol, why, and how long a killed replica's partitions wait.

Pure: decides from the settings and from what the broker and the client said about the group.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from worker.kafka.client.announcement import CLIENT_ID
from worker.settings import KafkaSettings

CLASSIC_SESSION = 45.0  # librdkafka's and Kafka's default for `session.timeout.ms`, seconds


@dataclass(frozen=True, slots=True)
class Membership:
    """One log line's worth. `takeover_seconds` is how long a killed replica keeps its partitions; None: not known.

    `client_id` is what the group's others see of us.
    """

    protocol: Literal["consumer", "classic"]
    why: str
    takeover_seconds: float | None
    client_id: str = CLIENT_ID

    def __str__(self) -> str:
        known = "an unknown time" if self.takeover_seconds is None else f"{self.takeover_seconds:g} s"
        return f"group protocol {self.protocol} ({self.why}); a killed replica's partitions move after {known}"


def choose_membership(kafka: KafkaSettings, group_sessions: float | None, *, is_absent: bool = False) -> Membership:
    """The protocol to join with. `group_sessions`: seconds the broker allows a KIP-848 member, None where not told.

    `is_absent`: the broker is known to have no KIP-848. A client that asks such a broker for it waits without a word.
    """
    classic_session = CLASSIC_SESSION if kafka.session_timeout_ms is None else kafka.session_timeout_ms / 1000
    if kafka.group_protocol == "consumer":
        return Membership("consumer", "as configured", group_sessions)
    if why := _why_classic(kafka, is_absent=is_absent):
        return Membership("classic", why, classic_session)
    return Membership("consumer", "KIP-848, the broker's own", group_sessions)


def fall_back(wanted: Membership, said: str) -> Membership:
    """Classic after all: the broker knows KIP-848 and has it switched off."""
    why = f"the broker refused KIP-848: {said}"
    return replace(wanted, protocol="classic", why=why, takeover_seconds=CLASSIC_SESSION)


def _why_classic(kafka: KafkaSettings, *, is_absent: bool) -> str | None:
    if kafka.group_protocol == "classic":
        return "as configured"
    if kafka.session_timeout_ms is not None:
        return "WORKER_KAFKA__SESSION_TIMEOUT_MS is set, which KIP-848 leaves to the broker"
    if kafka.group_instance_id is not None:
        # Of two equal names KIP-848 refuses the new one until the old one's session ends, classic the old one. A killed
        # replica that came back at once was refused for good there, and had its partitions after 0.1 s here (in 2026).
        return "WORKER_KAFKA__GROUP_INSTANCE_ID is set, and a killed static member comes back at once only there"
    return "the broker has no KIP-848" if is_absent else None
