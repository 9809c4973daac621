"""At its start a worker learns the newest schemas, and the one of its answers, or says what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.unit.registry.scripted import ABSENT, PAYMENT, Answer, ScriptedRegistry, away, schema_page, settings
from worker.core.failures import BadConfiguration
from worker.core.schemas import RegisteredSchema
from worker.registry import proto_compiler
from worker.registry.registry import Registry

OURS = RegisteredSchema(None, None, "AVRO", '{"type": "record", "name": "Score", "fields": []}')
NEWEST = "/subjects/payments-value/versions/latest"
REGISTER = "/subjects/scores-value/versions"
LOOK_UP = "/subjects/scores-value"
TRIAL = "/compatibility/subjects/scores-value/versions/latest"

Opening = Callable[..., Registry]


@pytest.fixture
def script() -> ScriptedRegistry:
    return ScriptedRegistry()


@pytest.fixture
def opened(script: ScriptedRegistry) -> Iterator[Opening]:
    """Opens registries, and closes them at the end."""
    made: list[Registry] = []

    def opened(**given: Any) -> Registry:
        made.append(Registry(settings(**given)))
        script.attach(made[-1]._client)
        return made[-1]

    yield opened
    for registry in made:
        registry.close(10)


def test_the_newest_schema_is_here_before_the_first_record(script: ScriptedRegistry, opened: Opening) -> None:
    """It need not be asked for by its id."""
    script.pages[NEWEST] = schema_page(id=7, version=2)
    registry = opened()

    found = registry.newest("payments-value")

    assert found == registry.schemas.get(7) == RegisteredSchema(7, None, "AVRO", PAYMENT)
    assert script.paths == [NEWEST]


def test_a_subject_without_a_schema_has_none(script: ScriptedRegistry, opened: Opening) -> None:
    """Nobody has published, or subjects are not named by topics."""
    script.pages[NEWEST] = ABSENT

    assert opened().newest("payments-value") is None


def test_a_text_of_protobuf_is_compiled_at_the_start(
    script: ScriptedRegistry, opened: Opening, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is compiled once for a folder of schemas; without a compiler the start says what to install."""
    script.pages[NEWEST] = schema_page("message A {}", id=7, version=2, schemaType="PROTOBUF")
    compiled = opened(cache_directory=tmp_path).newest("payments-value")

    monkeypatch.setattr(proto_compiler, "find_spec", lambda _: None)

    assert opened(cache_directory=tmp_path).newest("payments-value") == compiled
    assert opened(cache_directory=tmp_path).schemas.get(7) == compiled
    with pytest.raises(BadConfiguration, match=r"WORKER_REGISTRY__URL: the registry has the .*pip install"):
        opened().newest("payments-value")


def test_a_newest_schema_that_cannot_be_read_ends_the_start(script: ScriptedRegistry, opened: Opening) -> None:
    """It is not taken for none."""
    script.pages[NEWEST] = schema_page("message A {", id=7, version=2, schemaType="PROTOBUF")

    with pytest.raises(BadConfiguration, match="the newest schema of payments-value cannot be compiled: default:1:12"):
        opened().newest("payments-value")


def test_the_schema_of_answers_is_registered(script: ScriptedRegistry, opened: Opening) -> None:
    """Each start asks for it, which changes nothing if it is there."""
    script.pages[REGISTER] = (200, {"id": 9})

    assert opened().of_answers("scores-value", OURS) == OURS._replace(id=9)


def test_without_the_right_to_register_ours_is_looked_up(script: ScriptedRegistry, opened: Opening) -> None:
    """Where the subject has it, nothing is registered."""
    script.pages[LOOK_UP] = (200, {"id": 8, "subject": "scores-value", "version": 1, "schema": OURS.text})

    assert opened(register=False).of_answers("scores-value", OURS) == OURS._replace(id=8)
    assert script.paths == [LOOK_UP]


def test_a_schema_that_is_not_there_is_named_for_whoever_may_register(
    script: ScriptedRegistry, opened: Opening
) -> None:
    """Answers under another schema's id could not be read."""
    script.pages[LOOK_UP] = ABSENT

    with pytest.raises(BadConfiguration) as found:
        opened(register=False).of_answers("scores-value", OURS)

    assert str(found.value) == (
        "WORKER_REGISTRY__REGISTER: scores-value has no schema for these answers: set it to true, or register this one "
        f"there: {OURS.text}"
    )


def test_an_incompatible_schema_of_answers_ends_the_start(script: ScriptedRegistry, opened: Opening) -> None:
    """The registry says why, and the line what can be changed."""
    script.pages[REGISTER] = (409, {"error_code": 409, "message": "field score was removed"})

    with pytest.raises(BadConfiguration, match=r"scores-value does not take .*: field score was removed; change"):
        opened().of_answers("scores-value", OURS)


@pytest.mark.parametrize(("page", "is_taken"), [
    ((200, {"is_compatible": True}), True),
    ((200, {"is_compatible": False}), False),
    (ABSENT, True),
])  # fmt: skip
def test_a_trial_asks_whether_the_schema_of_answers_would_be_taken(
    script: ScriptedRegistry, opened: Opening, page: Answer, *, is_taken: bool
) -> None:
    """Nothing is registered; a subject without a schema takes any."""
    script.pages[TRIAL] = page

    with nullcontext() if is_taken else pytest.raises(BadConfiguration, match="does not fit the newest one there; ch"):
        assert opened().of_answers("scores-value", OURS, is_trial=True) == OURS._replace(id=0)

    assert script.paths == [TRIAL]


def test_a_login_that_is_refused_ends_the_start(script: ScriptedRegistry, opened: Opening, tmp_path: Path) -> None:
    """Whatever a folder has: the login would be refused for each new schema."""
    script.pages[NEWEST] = schema_page(id=7)
    opened(cache_directory=tmp_path).newest("payments-value")
    script.pages[NEWEST] = (401, {"error_code": 40101, "message": "Unauthorized"})

    with pytest.raises(BadConfiguration, match=r"WORKER_REGISTRY__URL: .*it refuses our login.* it needs a login"):
        opened(cache_directory=tmp_path).newest("payments-value")


def test_a_registry_that_is_away_ends_a_start_that_needs_it(script: ScriptedRegistry, opened: Opening) -> None:
    """The line says why, and how later starts can do without it."""
    script.pages[NEWEST] = away()

    with pytest.raises(BadConfiguration, match=r"does not answer: ConnectError.*WORKER_REGISTRY__CACHE_DIRECTORY"):
        opened().newest("payments-value")


def test_a_worker_with_a_folder_starts_while_the_registry_is_away(
    script: ScriptedRegistry, opened: Opening, tmp_path: Path
) -> None:
    """What the registry answered last counts, and the schemas that were met are here."""
    script.pages |= {NEWEST: schema_page(id=7), REGISTER: (200, {"id": 9})}
    before = opened(cache_directory=tmp_path)
    newest, answers = before.newest("payments-value"), before.of_answers("scores-value", OURS)
    script.pages |= {NEWEST: away(), REGISTER: away(), TRIAL: away()}

    later = opened(cache_directory=tmp_path)

    assert later.newest("payments-value") == newest == later.schemas.get(7)
    assert later.of_answers("scores-value", OURS) == later.of_answers("scores-value", OURS, is_trial=True) == answers
    assert before.away is None
    assert "does not answer: ConnectError" in str(later.away)
