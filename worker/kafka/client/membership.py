"""How a worker belongs to its consumer group: the protocol, the time to take over, and the model that it announces.

A replica tells the others of its group in its client id which model it serves:

    inference-worker/digits/1/3f9a2b1c/77aa01ff
                     │      │ │        └ a digest of the settings that requesters notice
                     │      │ └ the model's file, the beginning of its SHA-256
                     └ name └ version

Two models in one group would each answer some of the partitions, and nothing would fail. Every member may see the
others' client ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from worker.settings import KafkaSettings

CLIENT_ID = "inference-worker"
CLASSIC_SESSION = 45.0  # librdkafka's and Kafka's default for `session.timeout.ms`, seconds

_DIGITS = 8  # of each digest: among the few replicas of a group that is plenty
_LONGEST = 64  # characters of a name or a version
_ODD = re.compile(r"[^A-Za-z0-9._-]")  # what quotas, metrics and tools by client id do not like
_MOST_NAMED = 3  # hosts in one line


@dataclass(frozen=True, slots=True)
class Membership:
    """The way into the group. `takeover_seconds`: how long a killed replica keeps its partitions, if known."""

    protocol: Literal["consumer", "classic"]
    why: str
    takeover_seconds: float | None
    client_id: str = CLIENT_ID

    def __str__(self) -> str:
        known = "an unknown time" if self.takeover_seconds is None else f"{self.takeover_seconds:g} s"
        return f"group protocol {self.protocol} ({self.why}); a killed replica's partitions move after {known}"


def choose_membership(kafka: KafkaSettings, group_sessions: float | None, *, is_absent: bool = False) -> Membership:
    """The protocol to join with. `group_sessions`: seconds that the broker allows a KIP-848 member, if told.

    `is_absent`: the broker has no KIP-848. A client that asks such a broker for it waits without a word.
    """
    classic_session = CLASSIC_SESSION if kafka.session_timeout_ms is None else kafka.session_timeout_ms / 1000
    if kafka.group_protocol == "consumer":
        return Membership("consumer", "as configured", group_sessions)
    if why := _why_classic(kafka, is_absent=is_absent):
        return Membership("classic", why, classic_session)
    return Membership("consumer", "KIP-848, the broker's own", group_sessions)


def fall_back(wanted: Membership, said: str) -> Membership:
    """The classic protocol after all: the broker knows KIP-848 and has it switched off."""
    why = f"the broker refused KIP-848: {said}"
    return replace(wanted, protocol="classic", why=why, takeover_seconds=CLASSIC_SESSION)


def _why_classic(kafka: KafkaSettings, *, is_absent: bool) -> str | None:
    if kafka.group_protocol == "classic":
        return "as configured"
    if kafka.session_timeout_ms is not None:
        return "WORKER_KAFKA__SESSION_TIMEOUT_MS is set, which KIP-848 leaves to the broker"
    if kafka.group_instance_id is not None:
        # With two equal names KIP-848 refuses the new one until the old one's session ends, classic the old one.
        return "WORKER_KAFKA__GROUP_INSTANCE_ID is set, and a killed static member comes back at once only there"
    return "the broker has no KIP-848" if is_absent else None


class Member(NamedTuple):
    """One member of a group, as its coordinator describes it."""

    client_id: str
    host: str


class Announcement(NamedTuple):
    """The model that one replica serves. `file` and `wire` are digests, `wire` of the settings about requests."""

    name: str
    version: str
    file: str
    wire: str

    @classmethod
    def of(cls, name: str, version: str, file: str, wire: str) -> Announcement:
        """The announcement as it travels: without odd characters, and short."""
        return cls(_plain(name), _plain(version), file[:_DIGITS], wire[:_DIGITS])

    @classmethod
    def read(cls, client_id: str) -> Announcement | None:
        """None for the client id of something else."""
        program, *parts = client_id.split("/")
        return cls._make(parts) if program == CLIENT_ID and len(parts) == len(cls._fields) else None

    @property
    def client_id(self) -> str:
        return "/".join((CLIENT_ID, *self))

    def __str__(self) -> str:
        return f"{self.name} {self.version} ({self.file or 'a file that cannot be read'})"


def _plain(text: str) -> str:
    return _ODD.sub("_", text)[:_LONGEST]


def differing(own: Announcement, group: str, members: Iterable[Member]) -> list[str]:
    """A sentence for each other thing that members of this group serve; most often none."""
    hosts: dict[Announcement, list[str]] = {}
    for member in members:
        other = Announcement.read(member.client_id)
        if other is not None and other != own:
            hosts.setdefault(other, []).append(member.host.lstrip("/"))
    return [_sentence(own, group, other, there) for other, there in sorted(hosts.items())]


def _sentence(own: Announcement, group: str, other: Announcement, hosts: list[str]) -> str:
    named = ", ".join(sorted(set(hosts))[:_MOST_NAMED])
    differs = "another model, version or file" if other[:-1] != own[:-1] else "other settings of requests and answers"
    return (
        f"group {group}: members on {named} ({len(hosts)} in all) serve {other}, this worker {own}, with "
        f"{differs}; unless a roll-out is under way, give each model a group of its own (WORKER_KAFKA__GROUP_ID)"
    )
