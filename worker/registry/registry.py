"""The schema registry of a worker: what it needs at the start, and the schemas that it asks for while it serves.

At the start the worker waits for the registry: for the newest schemas of its topics, and for the schema of its answers,
which the registry itself holds against the earlier ones. If it is away then, its last answers count, where a folder has
them.
"""

from __future__ import annotations

from collections.abc import Callable

from worker.core.failures import BadConfiguration
from worker.core.schemas import RegisteredSchema
from worker.registry.client import RegistryClient
from worker.registry.schema_files import SchemaFiles
from worker.registry.schemas import Schemas
from worker.registry.verdicts import NoCompiler, NotInRegistry, NotReadable, NotTaken, RegistryAway, RegistryRefuses
from worker.settings import RegistrySettings


class Registry:
    """Owns the client, the folder, and the thread that asks (`schemas`)."""

    def __init__(self, settings: RegistrySettings) -> None:
        """Raises `BadConfiguration` for certificates that cannot be used, and a folder that cannot be written."""
        self.away: str | None = None  # why the folder answered in the registry's place
        self._registers = settings.register
        self._client = RegistryClient(settings)
        self._files = SchemaFiles(settings.cache_directory, settings.url)
        self.schemas = Schemas(self._client, self._files, self._files.known())

    def newest(self, subject: str) -> RegisteredSchema | None:
        """The newest schema of a subject, which its records probably have; None if it has none.

        From now on it need not be asked for. Raises `BadConfiguration` if the registry does not answer, or with what
        cannot be read.
        """
        try:
            found = self._said(f"newest of {subject}", lambda: self._client.latest(subject))
        except NotReadable as unreadable:
            raise BadConfiguration(
                f"WORKER_RECORDS__ENCODING: the newest schema of {subject} {unreadable}; answers are written as it says"
            ) from unreadable
        except NotInRegistry:
            return None
        if found.id is not None:
            self.schemas.keep(found.id, found)
            self._files.keep(found.id, found)
        return found

    def of_answers(self, subject: str, wanted: RegisteredSchema, *, is_trial: bool = False) -> RegisteredSchema:
        """The schema of this subject's answers, with its id.

        It is registered if it is not there, or in a trial has the id 0 if it could be; with `register` off it must be
        there. Raises `BadConfiguration`.
        """
        is_trial = is_trial and self._registers
        ask = self._client.tried if is_trial else self._client.register if self._registers else self._client.looked_up
        what = f"{wanted.type} answers of {subject}: {wanted.text}"
        try:
            return self._said(what, lambda: ask(subject, wanted), is_kept=not is_trial)
        except NotTaken as refused:
            raise BadConfiguration(
                f"WORKER_REGISTRY__REGISTER: {subject} does not take the schema of the answers: {refused}; change "
                "[records.answer], or the compatibility of that subject"
            ) from refused
        except NotInRegistry as absent:
            raise BadConfiguration(
                f"WORKER_REGISTRY__REGISTER: {subject} has no schema for these answers: set it to true, or register "
                f"this one there: {wanted.text}"
            ) from absent

    def close(self, timeout: float) -> None:
        self.schemas.close(timeout)
        self._client.close()

    def _said(self, question: str, ask: Callable[[], RegisteredSchema], *, is_kept: bool = True) -> RegisteredSchema:
        """The registry's answer, or its last one while it is away. Raises `BadConfiguration` if there is none."""
        try:
            found = ask()
        except RegistryRefuses as refused:
            raise BadConfiguration(
                f"WORKER_REGISTRY__URL: {self._client.url}: {refused}; it needs a login that may read schemas, and "
                "register them unless WORKER_REGISTRY__REGISTER=false"
            ) from refused
        except RegistryAway as away:
            has_schema = isinstance(away, NoCompiler)
            why = str(away) if has_schema else f"{self._client.url} does not answer: {away}"
            if (kept := self._files.said(question)) is not None:
                self.away = f"{why}; the schemas of the cache directory count"
                return kept
            if has_schema:
                raise BadConfiguration(f"WORKER_REGISTRY__URL: {why}") from away
            raise BadConfiguration(
                f"WORKER_REGISTRY__URL: {why}; start it, or mend the address. A worker with a "
                "WORKER_REGISTRY__CACHE_DIRECTORY starts without it the next time"
            ) from away
        if is_kept:
            self._files.keep_said(question, found)
        return found

    def __repr__(self) -> str:
        return f"<Registry {self._client.url}>"
