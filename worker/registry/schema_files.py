"""The schemas kept in a folder, a file each, so that a worker starts while the registry is away.

A file is right for ever, because a schema never changes; but only for its own registry, whose address is in it. A file
that cannot be written or read is passed over: then the registry is asked.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import UUID

from worker.core.failures import BadConfiguration
from worker.core.schemas import NamedReference, RegisteredSchema, SchemaName

# As many as are kept in memory; publishers may register any number.
MOST_FILES = 1000
_UNREADABLE = (OSError, ValueError, TypeError, KeyError)


class SchemaFiles:
    """Owns the folder; without one it keeps nothing. Threads may use it one at a time."""

    def __init__(self, folder: Path | None, url: str) -> None:
        """`url` is the registry's. Raises `BadConfiguration` if nothing can be written to the folder."""
        self._folder = folder
        self._url = url
        if folder is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise BadConfiguration(
                f"WORKER_REGISTRY__CACHE_DIRECTORY: {folder} cannot be written: {error.strerror}; name another folder, "
                "or unset it"
            ) from error

    def known(self) -> Iterator[tuple[SchemaName, RegisteredSchema]]:
        """All schemas that are here, by name."""
        for file in [] if self._folder is None else sorted(self._folder.glob("schema-*.json"))[:MOST_FILES]:
            said = file.stem.removeprefix("schema-")
            with suppress(*_UNREADABLE):
                yield int(said) if said.isdecimal() else UUID(said), self._read(file)

    def keep(self, name: SchemaName, schema: RegisteredSchema) -> None:
        """Keep a schema by its name."""
        self._write(f"schema-{name}.json", schema)

    def said(self, question: str) -> RegisteredSchema | None:
        """The registry's last answer to a question that it may answer otherwise tomorrow; None: it is not here."""
        if self._folder is not None:
            with suppress(*_UNREADABLE):
                return self._read(self._folder / _named(question))
        return None

    def keep_said(self, question: str, answer: RegisteredSchema) -> None:
        """Keep what the registry answered."""
        self._write(_named(question), answer)

    def _read(self, file: Path) -> RegisteredSchema:
        """Raises `OSError`, `ValueError`, `TypeError` or `KeyError` if the file is not of this registry's schema."""
        said = json.loads(file.read_text(encoding="utf-8"))
        if said["registry"] != self._url:
            raise ValueError("of another registry")
        schema = RegisteredSchema(**said["schema"])
        return schema._replace(references=tuple(NamedReference(*each) for each in schema.references))

    def _write(self, name: str, schema: RegisteredSchema) -> None:
        if self._folder is None:
            return
        with suppress(OSError):
            if sum(1 for _ in self._folder.glob("*.json")) >= MOST_FILES:
                return
            handle, new = tempfile.mkstemp(dir=self._folder, suffix=".new")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump({"registry": self._url, "schema": schema._asdict()}, file)
            Path(new).replace(self._folder / name)


def _named(question: str) -> str:
    return f"answer-{hashlib.sha256(question.encode()).hexdigest()[:32]}.json"
