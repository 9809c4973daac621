"""A schema is asked for once, on a thread of its own; what the registry does not answer is asked again, for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from worker.core.schemas import RegisteredSchema, SchemaName, UnknownSchema
from worker.registry import schemas as room
from worker.registry.schema_files import SchemaFiles
from worker.registry.schemas import HIGHEST_ID, VERDICT_LASTS, Schemas
from worker.registry.verdicts import NotInRegistry, RegistryAway

GUID = UUID("7f0a7b3e-2f7e-4f6c-9d3f-0123456789ab")
NOWHERE = SchemaFiles(None, "http://localhost:8081")


class Registry:
    """Has the schemas below 100. `is_away`: it answers nothing; it fails on `broken` alone. `gate` holds answers up."""

    def __init__(self) -> None:
        self.asked: list[SchemaName] = []
        self.most_at_once = self._at_once = 0
        self.is_away = False
        self.broken: SchemaName | None = None
        self.failure: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.heard = threading.Semaphore(0)  # a request has ended

    def schema(self, name: SchemaName, patience: float) -> RegisteredSchema:
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        self.asked.append(name)
        self.gate.wait(30)
        self._at_once -= 1
        self.heard.release()
        if self.failure is not None:
            raise self.failure
        if self.is_away or name == self.broken:
            raise RegistryAway("connection refused")
        if isinstance(name, int) and name >= 100:
            raise NotInRegistry("is not in the registry")
        return named(name)


def named(name: SchemaName) -> RegisteredSchema:
    return (
        RegisteredSchema(name, None, "AVRO", "{}")
        if isinstance(name, int)
        else RegisteredSchema(None, str(name), "AVRO", "{}")
    )


class World:
    def __init__(self) -> None:
        self.now = 1000.0
        self.registry = Registry()
        self.schemas = Schemas(self.registry, NOWHERE, [(1, named(1))], lambda: self.now)

    def comes(self, name: SchemaName) -> RegisteredSchema | UnknownSchema:
        """Ask until there is an answer."""
        assert until(lambda: self.schemas.get(name) is not None)
        found = self.schemas.get(name)
        assert found is not None
        return found


def until(is_so: Callable[[], bool]) -> bool:
    """Wait for another thread."""
    waiting = threading.Event()
    return is_so() or any(waiting.wait(0.001) or is_so() for _ in range(20_000))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(room, "SHORTEST_PAUSE", 0.0001)
    monkeypatch.setattr(room, "LONGEST_PAUSE", 0.001)
    here = World()
    yield here
    here.registry.gate.set()
    here.schemas.close(10)


def test_a_schema_that_is_here_is_not_asked_for(world: World) -> None:
    """Those of the start are here."""
    assert world.schemas.get(1) == named(1)
    assert not world.registry.asked


@pytest.mark.parametrize("name", [7, GUID], ids=["id", "GUID"])
def test_a_schema_is_not_here_at_first_and_comes(world: World, name: SchemaName) -> None:
    """The question returns at once, and many of them make one request."""
    world.registry.gate.clear()

    first = [world.schemas.get(name) for _ in range(100)]
    world.registry.gate.set()

    assert first == [None] * 100
    assert world.comes(name) == named(name)
    assert world.registry.asked == [name]


def test_a_verdict_counts_for_a_moment_alone(world: World) -> None:
    """Its publisher may be about to register it."""
    verdict = world.comes(100)
    world.now += VERDICT_LASTS - 1
    again = world.schemas.get(100)
    world.now += 2

    assert verdict == again == UnknownSchema("schema id 100 is not in the registry")
    assert world.schemas.get(100) is None
    world.comes(100)
    assert world.registry.asked == [100, 100]


def test_a_number_that_no_registry_has_is_not_asked_for(world: World) -> None:
    """The registry would answer as to a wrong address, which is no verdict."""
    assert world.schemas.get(HIGHEST_ID + 1) == UnknownSchema(
        f"schema id {HIGHEST_ID + 1} is higher than any in a registry"
    )
    assert not world.registry.asked


def test_a_registry_that_is_away_is_asked_until_it_answers(world: World) -> None:
    """Meanwhile it is known why, and since when."""
    world.registry.is_away = True
    assert world.schemas.get(7) is None
    assert until(lambda: len(world.registry.asked) > 5)
    world.now += 60
    trouble, since = world.schemas.trouble, world.schemas.away_since

    world.registry.is_away = False

    assert (trouble, since) == ("connection refused", 1000.0)
    assert world.comes(7) == named(7)
    assert until(lambda: (world.schemas.trouble, world.schemas.away_since) == (None, None))


def test_a_schema_that_the_registry_fails_on_holds_up_no_other(world: World) -> None:
    """It goes behind the other questions each time."""
    world.registry.broken = 7
    world.schemas.get(7)

    assert [world.comes(name) for name in (8, 9, 10)] == [named(8), named(9), named(10)]
    assert world.schemas.get(7) is None


def test_one_request_is_under_way_and_few_questions_wait(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A publisher may name a million schemas: a question for which there is no room is asked later."""
    monkeypatch.setattr(room, "MOST_QUESTIONS", 3)
    world.registry.gate.clear()
    for name in range(50, 60):
        world.schemas.get(name)
    waiting = len(world.schemas._asked)
    world.registry.gate.set()

    assert waiting == 3
    assert [world.comes(name) for name in range(50, 60)] == [named(name) for name in range(50, 60)]
    assert world.registry.most_at_once == 1


def test_few_schemas_and_verdicts_are_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first that came goes first, and is asked for again."""
    monkeypatch.setattr(room, "MOST_SCHEMAS", 3)
    monkeypatch.setattr(room, "MOST_VERDICTS", 3)

    for name in (2, 3, 4, 100, 101, 102, 103):
        world.comes(name)

    assert list(world.schemas._schemas) == [2, 3, 4]
    assert list(world.schemas._verdicts) == [101, 102, 103]
    assert world.comes(1) == named(1)


def test_a_bug_in_the_thread_ends_the_worker(world: World) -> None:
    """Partitions would wait for ever for a thread that is gone."""
    world.registry.failure = ZeroDivisionError("bug")
    world.schemas.get(7)
    assert until(lambda: not world.schemas._thread.is_alive())

    with pytest.raises(ZeroDivisionError):
        world.schemas.get(7)


def test_it_closes_while_a_question_is_asked_in_vain(world: World) -> None:
    """A stop does not wait for the registry."""
    world.registry.is_away = True
    world.schemas.get(7)

    world.schemas.close(10)

    assert not world.schemas._thread.is_alive()


def test_a_schema_that_came_is_kept_in_its_folder(tmp_path: Path) -> None:
    """The next start has it before the registry is asked."""
    files = SchemaFiles(tmp_path, "http://localhost:8081")
    schemas = Schemas(Registry(), files)
    assert until(lambda: schemas.get(7) is not None)
    schemas.close(10)

    away = Registry()
    away.is_away = True
    later = Schemas(away, files, files.known())

    assert later.get(7) == named(7)
    later.close(10)
