"""The protocol by which a worker belongs to its consumer group, and why."""

from __future__ import annotations

from typing import Literal, NamedTuple

from worker.settings import KafkaSettings

CLIENT_ID = "inference-worker"


class Membership(NamedTuple):
    """The way into the group."""

    protocol: Literal["consumer", "classic"]
    why: str

    def __str__(self) -> str:
        return f"group protocol {self.protocol} ({self.why})"


def choose_membership(kafka: KafkaSettings, *, is_absent: bool = False) -> Membership:
    """The protocol to join with.

    `is_absent`: the broker has no KIP-848. A client that asks such a broker for it waits without a word.
    """
    if kafka.group_protocol == "consumer":
        return Membership("consumer", "as configured")
    if why := _why_classic(kafka, is_absent=is_absent):
        return Membership("classic", why)
    return Membership("consumer", "KIP-848, the broker's own")


def fall_back(said: str) -> Membership:
    """The classic protocol after all: the broker knows KIP-848 and has it switched off."""
    return Membership("classic", f"the broker refused KIP-848: {said}")


def _why_classic(kafka: KafkaSettings, *, is_absent: bool) -> str | None:
    if kafka.group_protocol == "classic":
        return "as configured"
    if kafka.session_timeout_ms is not None:
        return "WORKER_KAFKA__SESSION_TIMEOUT_MS is set, which KIP-848 leaves to the broker"
    if kafka.group_instance_id is not None:
        # With two equal names KIP-848 refuses the new one until the old one's session ends, classic the old one.
        return "WORKER_KAFKA__GROUP_INSTANCE_ID is set, and a killed static member comes back at once only there"
    return "the broker has no KIP-848" if is_absent else None
