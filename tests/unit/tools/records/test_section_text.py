"""The text of a section gives the proposal back, whatever the fields are called."""

from __future__ import annotations

import tomllib

import pytest

from tests.unit.tools.records.test_proposal import proposed, spec
from worker.tools.records.section_text import section_text

ODD = ["with space", "a.b", 'quo"te', "line\nbreak", "ünï", "\x7f", "a[0]", "#", "'"]


@pytest.mark.parametrize("name", ODD)
def test_a_name_of_any_characters_is_read_back(name: str) -> None:
    """Its comment stays a comment."""
    proposal = proposed([spec(name)], {name: 1.5, "id": "a"}, {name: None, "id": "b"}, {"id": "c"})

    text = section_text(proposal, 3)

    assert tomllib.loads(text)["records"] == proposal.section
    assert proposal.section["inputs"][name]["default"] == 0
    assert text.startswith("# Proposed from 3 records")


def test_an_open_entry_is_a_comment_to_complete() -> None:
    """The file can be loaded all the same, and the model then says what it lacks."""
    text = section_text(proposed([spec("x"), spec("y")], {"a": 1, "b": 2}), 1)

    assert tomllib.loads(text)["records"]["inputs"] == {}
    assert "\n# x = \n" in text
