"""The text of a proposed section in TOML: an entry a line, each behind a comment that says what was seen."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from worker.terminal.terminal import count, printable
from worker.tools.records.inputs import Entry
from worker.tools.records.proposal import Proposal
from worker.tools.settings_file import comment, toml_key, toml_value

_HEAD = "Proposed from {}: look at each line. docs/records.md has what can be said here."


def section_text(proposal: Proposal, looked_at: int) -> str:
    """The section. An entry for which nothing fits is a comment, to be completed."""
    lines = [comment(_HEAD.format(count(looked_at, "record"))), "[records]"]
    for table, entries in groupby(proposal.entries, key=lambda entry: entry.table):
        if table:
            lines += ["", f"[records.{table}]"]
        for entry in entries:
            lines += _lines(entry)
    return "\n".join(lines) + "\n"


def _lines(entry: Entry) -> Iterator[str]:
    yield comment(printable(entry.said))
    key = toml_key(entry.name)
    yield f"# {key} = " if entry.value is None else f"{key} = {toml_value(entry.value)}"
