"""The name under which a worker's transactions are open: what a later process needs to end them in its stead.

With a name that outlives restarts the next process of this replica takes back at once what the last one left open, and
shuts it out should it still live. A transaction that a dead process left open under a random name ends after the
broker's timeout.

| from | outlives a restart | two processes with one name |
|---|---|---|
| TRANSACTIONAL_ID | yes | the younger shuts out the older, which ends |
| GROUP_INSTANCE_ID, unless that is set | yes | the group keeps one, which takes the name back; the other ends |
| neither: the group's name and a random part | no | there are never two |
"""

from __future__ import annotations

import socket
import uuid
from typing import NamedTuple
from urllib.parse import quote

HOSTNAME = "{hostname}"


class TransactionalId(NamedTuple):
    """A name, and the beginning that it shares with other replicas' names.

    `is_unique`: no other process may go on under it. `is_stable`: the next process of this replica has it too.
    """

    text: str
    family: str
    is_unique: bool
    is_stable: bool

    def relative(self) -> TransactionalId:
        """A name that begins like it, and that no worker has."""
        return _random(self.family if self.family.endswith("-") else f"{self.family}-")


def of_this_host(pattern: str) -> str:
    """A name that replicas share as a pattern, filled in."""
    return pattern.replace(HOSTNAME, socket.gethostname())


def resolve_transactional_id(pattern: str | None, group_id: str, instance_id: str | None = None) -> TransactionalId:
    """The name of this process, to be asked for once. `pattern` and `instance_id` are the settings; None: not set."""
    if pattern is not None:
        text = of_this_host(pattern)
        return TransactionalId(text, pattern.partition(HOSTNAME)[0] or text, is_unique=False, is_stable=True)
    family = f"{group_id}-"
    if instance_id is None:
        return _random(family)
    # The last `@` ends the group's name, for none is left in what follows: member `b-c` of group `a` and member `c` of
    # group `a-b` have two names.
    text = f"{family}@{quote(of_this_host(instance_id), safe='')}"
    return TransactionalId(text, family, is_unique=True, is_stable=True)


def _random(family: str) -> TransactionalId:
    return TransactionalId(f"{family}{uuid.uuid4()}", family, is_unique=True, is_stable=False)
