"""The name under which a worker's transactions are open: what a later process needs to end them in its stead.

With a name that outlives restarts the next process of this replica takes back at once what the last one left open, and
shuts it out should it still live. So two replicas must never have one name: each would shut out the other. A name made
up at random is nobody else's, and what its dead bearer left open ends by the broker's timeout.
"""

from __future__ import annotations

import socket
import uuid
from typing import NamedTuple

HOSTNAME = "{hostname}"


class TransactionalId(NamedTuple):
    """A name, and the beginning that it shares with those of other replicas: the whole of it, if it has none.

    `is_unique`: no other process can have it, so only the broker can have shut its bearer out.
    """

    text: str
    family: str
    is_unique: bool

    def relative(self) -> TransactionalId:
        """A name that begins like it, and is nobody's."""
        family = self.family if self.family.endswith("-") else f"{self.family}-"
        return TransactionalId(f"{family}{uuid.uuid4()}", family, is_unique=True)


def resolve_transactional_id(pattern: str | None, group_id: str) -> TransactionalId:
    """The name of this process, to be asked for once. `pattern` is the setting; None: a random name."""
    if pattern is None:
        family = f"{group_id}-"
        return TransactionalId(f"{family}{uuid.uuid4()}", family, is_unique=True)
    text = pattern.replace(HOSTNAME, socket.gethostname())
    return TransactionalId(text, pattern.partition(HOSTNAME)[0] or text, is_unique=False)
