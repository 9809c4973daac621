"""The answers of `/status`, and the page's files, read without a browser; the `integration` tests use one."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from html.parser import HTMLParser
from math import inf
from typing import Any

import pytest

from tests.unit.telemetry.test_events import P0, P1, FakeLedger, FakeWorker, batch
from tests.unit.test_settings import LEAST
from worker.core.failures import Code
from worker.core.records import ClosedBy, HostEnd, Partition, Record, Rejection, ReplyForm, Standing
from worker.core.stalls import Stall
from worker.settings import Settings, load
from worker.telemetry import Pages, WorkerEvents
from worker.telemetry.events import PUBLISH_EVERY
from worker.telemetry.metrics import Snapshot
from worker.telemetry.pages import FILES, MOST_PARTITIONS

SETTINGS = load(None, LEAST)


class FakeStates:
    keys, size, loads = 12, 3456, 0
    restoring, left_to_restore = 0, 0


def stall(offset: int) -> Stall:
    return Stall(offset, 900.0, is_transaction=False)


def restore_beside_a_stall(shown: Shown) -> None:
    shown.events.stalled({P0: stall(13)})
    shown.states.restoring = 2


class Shown:
    """Events with the test's clock, and the answers of `/status`."""

    def __init__(self, settings: Settings = SETTINGS) -> None:
        self.now = 1000.0
        self.events = WorkerEvents(max_batch_size=32, clock=lambda: self.now)
        self.ledger, self.states, self.worker = FakeLedger(), FakeStates(), FakeWorker(waiting=7)
        self.events.watch(self.worker.parts(self.ledger, self.states))
        self.pages = Pages(lambda: self.events.latest, settings, lambda: self.now)

    def turn(self, seconds: float = PUBLISH_EVERY) -> None:
        self.now += seconds
        self.events.turned(self.now, in_flight=3)

    @property
    def status(self) -> Any:
        return json.loads(self.pages.answer("/status")[1])


def content(path: str) -> str:
    return Pages(Snapshot, SETTINGS).answer(path)[1].decode()


@pytest.fixture
def shown() -> Shown:
    shown = Shown()
    shown.events.model_warmed("digits", "1", "cpu", "3f9a2b1c" * 8)
    shown.events.assigned([P0, P1])
    return shown


def reject(events: WorkerEvents, offset: int, message: str, code: Code = Code.INVALID_ARGUMENT) -> None:
    events.rejected(Rejection(Record(P0, offset, b"a-key", b"a-value", (), None), code, message, ReplyForm("raw")))


def test_there_is_an_answer_before_there_is_anything_to_say() -> None:
    """Someone may open the page while the model loads."""
    said = json.loads(content("/status"))

    assert (said["phase"], said["why"], said["at"], said["model"]) == ("starting", "starting", None, None)
    assert said["partitions"] == {"count": 0, "lag": 0, "shown": []}


def test_counters_and_buckets_are_said_as_they_stand(shown: Shown) -> None:
    """The page takes the difference of two answers."""
    shown.events.taken(5)
    shown.events.unanswered(1)
    shown.events.batch_closed(batch(16, ClosedBy.LINGER), 0.001)
    shown.events.batch_ran(16, 0.25, None)
    shown.events.settled({shown.now - 0.5: 4}, shown.now)
    shown.turn()

    said = shown.status

    assert (said["at"], said["taken"], said["passed_over"], said["settled"]) == (shown.now, 5, 1, 4)
    assert {"by": "linger", "batches": 1, "rows": 16} in said["batches"]
    assert len(said["batches"]) == len(ClosedBy)
    assert (said["most_rows"], said["inference"]) == (32, 0.25)
    assert said["loop"] <= time.process_time()
    assert dict(zip(said["latency"]["bounds"], said["latency"]["counts"], strict=False))[0.5] == 4
    assert said["model"] == {"name": "digits", "version": "1", "file": "3f9a2b1c", "device": "cpu", "sha256": ""}
    assert said["linger"] == 0.005
    assert said["held"][0] == {"name": "records", "now": 3, "limit": 0}


@pytest.mark.parametrize(
    ("change", "phase", "why"),
    [
        (lambda _: None, "serving", None),
        (lambda s: s.events.consumer_seen(0, {P0: Standing(1, 2)}), "cut_off", "no broker can be reached; records"),
        (lambda s: s.events.consumer_seen(1, {P0: Standing(1, 2)}), "serving", None),
        (lambda s: setattr(s.worker, "stop_asked", True), "draining", "told to stop"),
        (lambda s: setattr(s.states, "restoring", 2), "restoring", "the states of 2 partitions are being read back"),
        (lambda s: s.events.lost([P0, P1], 0), "starting", "not in the consumer group yet"),
        (lambda s: s.events.topics_absent(["orders"]), "topic_gone", "the cluster has no topic orders"),
        (lambda s: s.events.stalled(dict.fromkeys([P0, P1], stall(13))), "stalled", "nothing comes of the partitions"),
        (lambda s: s.events.stalled({P0: stall(13)}), "serving", None),
        (restore_beside_a_stall, "restoring", "the states of 2 partitions"),
    ],
)
def test_the_phase_is_a_word_with_its_reason(
    shown: Shown, change: Callable[[Shown], object], phase: str, why: str | None
) -> None:
    """The phase "serving" has no reason."""
    change(shown)
    shown.turn()

    said = shown.status

    assert said["phase"] == phase
    assert said["why"] is None if why is None else said["why"].startswith(why)


def test_the_process_is_said(shown: Shown) -> None:
    """It tells memory, processor time and uptime, and for how long the loop has not turned."""
    shown.turn()
    shown.now += 6.0

    said = shown.status

    assert said["still"] == 6.0
    assert said["worker"]["up"] == 6.0 + PUBLISH_EVERY
    assert said["worker"]["memory"] > 10 << 20
    assert said["worker"]["processor"] > 0
    assert said["host"] == {"process": None, "ended": 0, "away": 0.0}


def test_memory_and_processor_time_are_those_of_both_processes(shown: Shown) -> None:
    """The process that has the model may have most of both."""
    shown.turn()
    alone = shown.status["worker"]
    shown.events.host_started(os.getpid(), 0.5, "the first")

    both = shown.status["worker"]

    assert both["memory"] > 1.9 * alone["memory"]
    assert both["processor"] > alone["processor"] + 0.9 * time.process_time()


def test_a_process_that_ended_is_said(shown: Shown) -> None:
    """The page says for how long another one has been starting."""
    shown.events.host_started(os.getpid(), 0.5, "the first")
    shown.events.host_ended(HostEnd.CRASH, "SIGSEGV", 1)
    shown.now += 2.0

    assert shown.status["host"] == {"process": None, "ended": 1, "away": 2.0}


def test_partitions_that_wait_for_a_schema_are_shown(shown: Shown) -> None:
    """With them, since when the registry does not answer."""
    shown.events.assigned([P0, P1])
    shown.events.waits_for_schema(P0, "17", "connection refused")
    shown.worker.registry_away_since = shown.now - 60
    shown.turn()

    said = shown.status["schemas"]

    assert (said["waiting"], round(said["away"])) == (1, 60)


def test_partitions_keep_their_order(shown: Shown) -> None:
    """The order does not depend on their lag: rows that move cannot be read. Each has its oldest request's age."""
    p2, p10 = Partition("requests", 2), Partition("requests", 10)
    shown.events.assigned([p10, p2])
    shown.events.consumer_seen(1, {P0: Standing(0, 3), P1: Standing(0, 900), p10: Standing(0, 5)})
    shown.ledger.oldest = {P1: 998.0, p10: inf}
    shown.turn(1.0)

    said = shown.status["partitions"]

    assert (said["count"], said["lag"]) == (4, 908)
    assert said["shown"] == [
        {"partition": "requests/0", "lag": 3, "oldest": None},
        {"partition": "requests/1", "lag": 900, "oldest": 3.0},
        {"partition": "requests/2", "lag": None, "oldest": None},
        {"partition": "requests/10", "lag": 5, "oldest": None},
    ]


def test_of_many_partitions_the_furthest_behind_are_shown(shown: Shown) -> None:
    """The answer stays small; the sums count all partitions."""
    many = [Partition("wide", number) for number in range(3 * MOST_PARTITIONS)]
    shown.events.assigned(many)
    shown.events.consumer_seen(1, {p: Standing(0, 10 + 10_000 * (p.number == 250)) for p in many})
    shown.turn()

    said = shown.status["partitions"]

    assert (said["count"], said["lag"]) == (2 + len(many), 10 * len(many) + 10_000)
    assert len(said["shown"]) == MOST_PARTITIONS
    assert [row["partition"] for row in said["shown"]][-1] == "wide/250"


def test_the_last_reasons_are_said_once_each_and_without_what_was_sent(shown: Shown) -> None:
    """A frequent reason does not push out the reasons of other codes."""
    reject(shown.events, 1, "model 'secret-name' is not served here", Code.NOT_FOUND)
    for offset in range(2, 200):
        reject(shown.events, offset, f"expected FP32, got 'payload-{offset}'")
    shown.turn(1.0)

    said = shown.status

    assert all(0 <= reason.pop("ago") < 60 for reason in said["reasons"])
    assert said["reasons"] == [
        {"code": "INVALID_ARGUMENT", "count": 198, "reason": "expected FP32, got '…'", "source": "requests/0/199"},
        {"code": "NOT_FOUND", "count": 1, "reason": "model '…' is not served here", "source": "requests/0/1"},
    ]
    assert {"code": "INVALID_ARGUMENT", "count": 198} in said["rejections"]
    assert not re.search("secret-name|payload|a-key|a-value", json.dumps(said))


# The files


class Elements(HTMLParser):
    """Collects every element of a page with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_nothing_is_loaded_from_elsewhere_and_nothing_is_inline() -> None:
    """The security policy refuses both, and text from the worker never becomes markup."""
    for path in FILES:
        addresses = set(re.findall(r"https?://[\w./]+", content(path)))
        assert addresses <= {"http://www.w3.org/2000/svg"}, path  # the name of a language, never fetched
    for tag, held in Elements(content("/")).found:
        assert tag != "style"
        assert not [name for name in held if name.startswith("on") or name == "style"]
        for name in ("src", "href"):
            assert not (held.get(name) or "").startswith(("/", "//")), "a proxy may put it under a path of its own"
    assert not re.search(
        r"innerHTML\s*=(?!=)|outerHTML|insertAdjacentHTML|document\.write|\beval\b", content("/page.js")
    )
