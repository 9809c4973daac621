"""Why requests were rejected, fit for others than their publishers: without what was quoted of a request.

A rejection's message quotes what came, and the model's own complaint may name a number of its input. Both are masked
here when an operator looks, never when a request is rejected.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from worker.core.failures import Code
from worker.core.records import Rejection
from worker.core.tensors.stacking import VALUE_NOT_TAKEN
from worker.telemetry.logs import cleaned, printable

LONGEST_REASON = 200  # characters: a line

# A quotation as `repr` writes it, up to the end of the text where the message cut it short.
_QUOTED = re.compile(r"""(['"])(?:\\.|(?!\1).)*(\1|\\?\Z)""", re.DOTALL)
_NUMBER = re.compile(r"-?\d[\w.+-]*")


class RecentRejection(NamedTuple):
    """One rejection; `date` is seconds since the epoch, and `message` is its publisher's alone."""

    code: str
    source: str
    message: str
    date: float

    @property
    def reason(self) -> str:
        """The message without what it quotes, on one line."""
        message = self.message
        if self.code == Code.INTERNAL or message.startswith(VALUE_NOT_TAKEN):
            message = _NUMBER.sub("…", message)
        return printable(cleaned(_unquoted(message)), LONGEST_REASON)


def reason_of(rejection: Rejection) -> str:
    """Its message without what it quotes, on one line."""
    return RecentRejection(rejection.code, rejection.record.source, rejection.message, 0.0).reason


def _unquoted(message: str) -> str:
    quotations = list(_QUOTED.finditer(message))
    if quotations and not quotations[-1][2]:  # one was cut short, so the quotes before it may be wrongly paired
        return f"{message[: quotations[0].start()]}'…'"
    return _QUOTED.sub("'…'", message)
