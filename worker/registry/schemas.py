"""The schemas that records name, fetched by a thread of their own, so that the loop never waits for the registry.

    loop: get(name) ─▶ question ─▶ thread: one request at a time ─▶ schema, or verdict ─▶ loop: get(name)

A schema never changes, so it is kept; a verdict that there is none is kept for a moment, because its publisher may be
about to register it. A request that gets no answer is repeated for ever, and others go between: one schema that the
registry fails on holds up no other.

Publishers can name any number of schemas. So little is kept, few questions wait, and a question costs its partition
the time of one request, which is all that a flood of names can do.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from worker.core.schemas import RegisteredSchema, SchemaName, UnknownSchema
from worker.registry.schema_files import SchemaFiles
from worker.registry.verdicts import NotInRegistry, RegistryAway

_V = TypeVar("_V")
# Schemas kept, verdicts kept, questions that wait. A topic has a few schemas, and a new one waits behind all questions:
# unknown ids one after the other took 13 ms each on a busy machine (2026-11).
MOST_SCHEMAS, MOST_VERDICTS, MOST_QUESTIONS = 1000, 1000, 16
VERDICT_LASTS = 10.0  # seconds
# Seconds between two requests after one without an answer.
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
# Seconds that a schema may take to be compiled before others are asked for: one takes 0.1, on a busy machine 0.8
# (2026-11).
COMPILING = 2.0
HIGHEST_ID = 2**31 - 1  # of a registry's schemas; it answers to a higher number as to a page that is not there


class Asked(Protocol):
    """A registry that is asked for one schema at a time (`RegistryClient`)."""

    def schema(self, name: SchemaName, patience: float) -> RegisteredSchema: ...


class Schemas:
    """The schemas of a registry (`ports.Schemas`). The loop's thread owns what is kept; the other one only asks."""

    def __init__(
        self,
        registry: Asked,
        files: SchemaFiles,
        known: Iterable[tuple[SchemaName, RegisteredSchema]] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`known` are schemas that need not be asked for."""
        self._registry = registry
        self._files = files
        self._clock = clock
        self._schemas: dict[SchemaName, RegisteredSchema] = {}
        self._verdicts: dict[SchemaName, tuple[UnknownSchema, float]] = {}  # until when each counts
        for name, schema in known:
            self.keep(name, schema)
        self._asked: set[SchemaName] = set()
        self._changed = threading.Condition()
        self._questions: deque[SchemaName] = deque()
        self._is_closed = False
        # Written by the thread.
        self._came: deque[tuple[SchemaName, RegisteredSchema | UnknownSchema]] = deque()
        self._failure: BaseException | None = None
        self.trouble: str | None = None
        self.away_since: float | None = None
        self._thread = threading.Thread(target=self._serve, name="registry", daemon=True)
        self._thread.start()

    # The loop's side

    def get(self, name: SchemaName) -> RegisteredSchema | UnknownSchema | None:
        """The schema, or the verdict that there is none; None: it is being asked, so ask again later."""
        if (schema := self._schemas.get(name)) is not None:
            return schema
        if self._failure is not None:
            raise self._failure
        while self._came:
            self._hear(*self._came.popleft())
        found = self._schemas.get(name) or self._verdict(name)
        if found is None:
            self._ask(name)
        return found

    def keep(self, name: SchemaName, schema: RegisteredSchema) -> None:
        """Keep a schema, which then need not be asked for."""
        _put(self._schemas, name, schema, MOST_SCHEMAS)

    def close(self, timeout: float) -> None:
        """End the thread; a request under way is given up."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(timeout)

    def _hear(self, name: SchemaName, answer: RegisteredSchema | UnknownSchema) -> None:
        self._asked.discard(name)
        if isinstance(answer, RegisteredSchema):
            self.keep(name, answer)
        else:
            _put(self._verdicts, name, (answer, self._clock() + VERDICT_LASTS), MOST_VERDICTS)

    def _verdict(self, name: SchemaName) -> UnknownSchema | None:
        if isinstance(name, int) and name > HIGHEST_ID:
            return _unknown(name, "is higher than any in a registry")
        verdict, until = self._verdicts.get(name, (None, 0.0))
        return verdict if self._clock() < until else None

    def _ask(self, name: SchemaName) -> None:
        if name in self._asked or len(self._asked) >= MOST_QUESTIONS:
            return
        self._asked.add(name)
        with self._changed:
            self._questions.append(name)
            self._changed.notify()

    # The thread's side

    def _serve(self) -> None:
        pause = SHORTEST_PAUSE
        while (name := self._next_question()) is not None:
            try:
                self._came.append((name, self._answer(name)))
                self.trouble = self.away_since = None
                pause = SHORTEST_PAUSE
            except RegistryAway as away:
                self.trouble, self.away_since = str(away), self.away_since or self._clock()
                with self._changed:
                    self._questions.append(name)  # behind the others
                    self._changed.wait_for(lambda: self._is_closed, pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            except BaseException as error:  # noqa: BLE001  # the loop raises it, so that no failure here goes unseen
                self._failure = error
                return

    def _next_question(self) -> SchemaName | None:
        """Wait for a question. Returns None when closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._questions)
            return None if self._is_closed else self._questions.popleft()

    def _answer(self, name: SchemaName) -> RegisteredSchema | UnknownSchema:
        try:
            schema = self._registry.schema(name, COMPILING)
        except NotInRegistry as absent:
            return _unknown(name, str(absent))
        self._files.keep(name, schema)
        return schema


def _unknown(name: SchemaName, why: str) -> UnknownSchema:
    return UnknownSchema(f"schema {'id' if isinstance(name, int) else 'GUID'} {name} {why}")


def _put(kept: dict[SchemaName, _V], name: SchemaName, value: _V, most: int) -> None:
    """Keep a value, and at most so many: the first that came goes first."""
    kept.pop(name, None)
    if len(kept) >= most:
        del kept[next(iter(kept))]
    kept[name] = value
