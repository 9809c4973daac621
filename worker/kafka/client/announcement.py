"""What a replica tells the others of its group that it serves: in its client id, as a description of the group has it.

    inference-worker/digits/1/3f9a2b1c/77aa01ff
                     │      │ │        └ the settings that requesters notice, a digest of them
                     │      │ └ the model's file, the beginning of its SHA-256
                     └ name └ version

Two models in one group would each answer some of the partitions, and nothing would fail. Both group protocols carry a
member's client id, no right beyond those of a member is needed to see it, and Kafka's own tools show it. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

CLIENT_ID = "inference-worker"

_DIGITS = 8  # of each digest: among the few replicas of a group that is plenty
_LONGEST = 64  # characters of a name or a version
_ODD = re.compile(r"[^A-Za-z0-9._-]")  # what quotas, metrics and tools by client id do not like
_MOST_NAMED = 3  # hosts in one line


class Member(NamedTuple):
    """One member of a group, as its coordinator describes it."""

    client_id: str
    host: str


class Announcement(NamedTuple):
    """What one replica serves. `file` and `wire` are digests, `wire` of what a deployment decides about requests."""

    name: str
    version: str
    file: str
    wire: str

    @classmethod
    def of(cls, name: str, version: str, file: str, wire: str) -> Announcement:
        """As it travels: without odd characters, and short."""
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
    noun, verb = ("member", "s") if len(hosts) == 1 else ("members", "")
    where = f"{len(hosts)} other {noun} (on {named})"
    if other[:-1] == own[:-1]:
        what = f"{where} serve{verb} {own} by other settings of what requests and answers are"
        cure = "give all replicas the same settings"
    elif other[:2] == own[:2]:
        what = f"{where} serve{verb} {other}, this worker {own}: another file under the same version"
        cure = "give each file a version of its own (WORKER_MODEL__VERSION), and write none in the place of another"
    else:
        what = f"{where} serve{verb} {other}, this worker {own}"
        cure = "give each model a group of its own (WORKER_KAFKA__GROUP_ID)"
    return (
        f"group {group}: {what}: which of them answers a request is up to its partition; {cure}, unless one is just "
        "being rolled out in the place of the other"
    )
