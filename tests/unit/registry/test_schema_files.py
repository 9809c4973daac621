"""Schemas kept in a folder are those of one registry, and anything else there is passed over."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest

from worker.core.failures import BadConfiguration
from worker.core.schemas import NamedReference, RegisteredSchema
from worker.registry import schema_files
from worker.registry.schema_files import SchemaFiles

URL = "https://registry:8081"
GUID = UUID("7f0a7b3e-2f7e-4f6c-9d3f-0123456789ab")
ONE = RegisteredSchema(7, None, "AVRO", '"int"', (NamedReference("a", '"é"'), NamedReference("b", "B")))
OTHER = RegisteredSchema(None, str(GUID), "PROTOBUF", "CgA=")


def test_what_was_kept_is_known_by_each_name(tmp_path: Path) -> None:
    """With its references, by id or by GUID."""
    files = SchemaFiles(tmp_path / "made" / "here", URL)

    files.keep(7, ONE)
    files.keep(GUID, OTHER)

    assert dict(SchemaFiles(tmp_path / "made" / "here", URL).known()) == {7: ONE, GUID: OTHER}


def test_an_answer_is_found_by_its_question(tmp_path: Path) -> None:
    """The last answer counts."""
    files = SchemaFiles(tmp_path, URL)

    files.keep_said("newest of payments", OTHER)
    files.keep_said("newest of payments", ONE)

    assert files.said("newest of payments") == ONE
    assert files.said("newest of others") is None
    assert dict(files.known()) == {}


def test_another_registrys_schemas_do_not_count(tmp_path: Path) -> None:
    """Its numbers mean other schemas."""
    SchemaFiles(tmp_path, "https://other:8081").keep(7, OTHER)

    files = SchemaFiles(tmp_path, URL)
    before = dict(files.known())
    files.keep(7, ONE)

    assert before == {}
    assert dict(files.known()) == {7: ONE}


@pytest.mark.parametrize("said", ["", "{", "[]", "{}", json.dumps({"registry": URL, "schema": {"id": 7}}), "\\xff"])
def test_a_damaged_file_is_passed_over(tmp_path: Path, said: str) -> None:
    """The registry is asked then."""
    (tmp_path / "schema-7.json").write_text(said)
    (tmp_path / "schema-nonsense.json").write_text(said)

    assert dict(SchemaFiles(tmp_path, URL).known()) == {}


def test_without_a_folder_nothing_is_kept() -> None:
    """Then a start needs the registry."""
    files = SchemaFiles(None, URL)

    files.keep(7, ONE)
    files.keep_said("newest of payments", ONE)

    assert dict(files.known()) == {}
    assert files.said("newest of payments") is None


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A start says so."""
    (tmp_path / "file").write_text("")

    with pytest.raises(BadConfiguration, match=r"WORKER_REGISTRY__CACHE_DIRECTORY: .*file cannot be written"):
        SchemaFiles(tmp_path / "file", URL)


def test_few_files_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Publishers may register any number of schemas."""
    monkeypatch.setattr(schema_files, "MOST_FILES", 3)
    files = SchemaFiles(tmp_path, URL)

    for number in range(9):
        files.keep(number, ONE)

    assert [name for name, _ in files.known()] == [0, 1, 2]


def test_a_disk_that_takes_nothing_more_harms_nobody(tmp_path: Path) -> None:
    """The schema is in memory all the same."""
    files = SchemaFiles(tmp_path / "folder", URL)
    (tmp_path / "folder").rmdir()

    files.keep(7, ONE)

    assert dict(files.known()) == {}
