"""The protocol by which a worker belongs to its consumer group, and the transactional id: the name of its transactions.

If the name outlives restarts, the next process of this replica at once aborts the transaction that the last process
left open, and shuts that process out if it still lives. Under a random name, a dead process's open transaction ends
after the broker's timeout.

| from | outlives a restart | two processes with one name |
|---|---|---|
| TRANSACTIONAL_ID | yes | the younger shuts out the older, which ends |
| GROUP_INSTANCE_ID, unless that is set | yes | the group keeps one, which takes the name back; the other ends |
| neither: the group's name and a random part | no | there are never two |
"""

from __future__ import annotations

import socket
import uuid
from typing import Literal, NamedTuple
from urllib.parse import quote

from worker.settings import KafkaSettings

HOSTNAME = "{hostname}"
CLIENT_ID = "inference-worker"


class Membership(NamedTuple):
    """The protocol to join the group with, and why it was chosen."""

    protocol: Literal["consumer", "classic"]
    why: str

    def __str__(self) -> str:
        return f"group protocol {self.protocol} ({self.why})"


def choose_membership(kafka: KafkaSettings, *, is_absent: bool = False) -> Membership:
    """Choose the protocol to join with.

    `is_absent`: the broker has no KIP-848. A client that asks such a broker for KIP-848 waits silently.
    """
    if kafka.group_protocol == "consumer":
        return Membership("consumer", "as configured")
    if why := _why_classic(kafka, is_absent=is_absent):
        return Membership("classic", why)
    return Membership("consumer", "KIP-848, the broker's own")


def fall_back(said: str) -> Membership:
    """The classic protocol, for a broker that knows KIP-848 but has it switched off."""
    return Membership("classic", f"the broker refused KIP-848: {said}")


def _why_classic(kafka: KafkaSettings, *, is_absent: bool) -> str | None:
    if kafka.group_protocol == "classic":
        return "as configured"
    if kafka.session_timeout_ms is not None:
        return "WORKER_KAFKA__SESSION_TIMEOUT_MS is set, which KIP-848 leaves to the broker"
    if kafka.group_instance_id is not None:
        # If two members have one name, KIP-848 refuses the new one until the old one's session ends; classic the old.
        return "WORKER_KAFKA__GROUP_INSTANCE_ID is set, and a killed static member comes back at once only there"
    return "the broker has no KIP-848" if is_absent else None


class TransactionalId(NamedTuple):
    """A transactional id, and `family`, the prefix that it shares with other replicas' ids.

    `is_unique`: no other process may go on under this id. `is_stable`: the next process of this replica has it, too.
    """

    text: str
    family: str
    is_unique: bool
    is_stable: bool

    def relative(self) -> TransactionalId:
        """An id with this one's prefix, which no worker has."""
        return _random(self.family if self.family.endswith("-") else f"{self.family}-")


def of_this_host(pattern: str) -> str:
    """Fill this host's name into a pattern that replicas share."""
    return pattern.replace(HOSTNAME, socket.gethostname())


def resolve_transactional_id(pattern: str | None, group_id: str, instance_id: str | None = None) -> TransactionalId:
    """The id of this process; call it once. `pattern` and `instance_id` are the settings, None if not set."""
    if pattern is not None:
        text = of_this_host(pattern)
        return TransactionalId(text, pattern.partition(HOSTNAME)[0] or text, is_unique=False, is_stable=True)
    family = f"{group_id}-"
    if instance_id is None:
        return _random(family)
    # The last `@` ends the group's name, because the quoted member's name has none. So member `b-c` of group `a` and
    # member `c` of group `a-b` have two names.
    text = f"{family}@{quote(of_this_host(instance_id), safe='')}"
    return TransactionalId(text, family, is_unique=True, is_stable=True)


def _random(family: str) -> TransactionalId:
    return TransactionalId(f"{family}{uuid.uuid4()}", family, is_unique=True, is_stable=False)
