"""How often in a row a process died before it settled anything of a partition, kept where the group keeps its offset.

    attempts=n         handed out n times since the last progress
    attempts=n trial   and the record at this offset was about to run alone

Pure: the text that goes along with a commit, and what it means. A commit of the delivery's carries none, so progress
clears it; what other tools write there counts as none.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# A partition read with so many is a suspect: two deaths in a row may be bad luck with machines, three are more
# likely a record's doing.
SUSPECT_FROM = 3

_TEXT = re.compile(r"attempts=([0-9]{1,9})( trial)?")


class Attempts(NamedTuple):
    """As a commit's metadata says it. `is_isolated`: the record at the offset was about to run alone."""

    times: int
    is_isolated: bool = False

    def __str__(self) -> str:
        return f"attempts={self.times}{' trial' if self.is_isolated else ''}"


NONE = Attempts(0)


def read_attempts(metadata: str | None) -> Attempts | None:
    """What the metadata of a commit says; None when it is not ours."""
    found = _TEXT.fullmatch(metadata or "")
    return None if found is None else Attempts(int(found[1]), found[2] is not None)
