"""The live page in a real Chromium: on events that the test makes, and on a real worker with the mock broker.

Pictures of every state lie in `.cache/page/` afterwards. Debian's package `chromium` is enough.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.integration.chromium import Chromium
from tests.readme import ROOT
from tests.unit.telemetry.test_events import batch
from tests.unit.telemetry.test_live_page import DEPLOYMENT, Shown, reject
from worker.core.records import ClosedBy, Partition, Standing
from worker.telemetry import HealthServer, TimeLimits
from worker.telemetry.page.live_page import FILES
from worker.telemetry.page.status import Deployment
from worker.tools.bench.replica import Replica
from worker.tools.demo.digits import MODEL, held_out, requests
from worker.tools.kafka.embedded import CLIENT_CONFIG, EmbeddedBroker

PICTURES = ROOT / ".cache" / "page"
WIDTHS = (400, 800, 1600)  # a phone, a tablet, a desk
EVERY, LOOKS = 2.0, 3  # seconds between two answers that the page asks for; so many are a line in a chart
LIMITS = TimeLimits(turn=60.0, run=60.0, stop=60.0)
STATEFUL = Deployment(
    "fraud-scoring-production",
    ("payments.requests.v2", "backfill.payments.requests.v2"),
    "payments.answers.v2",
    "exactly_once",
    lanes=2,
    has_state=True,
    replicas=("http://worker-1:8080/", "javascript:alert(1)"),
)
MARKUP = "<img src=x onerror=alert(1)>"
# What the page reads of an answer, field by field, and what of it is not there.
WATCHED = """
window.read = new Set(); window.missing = new Set();
const watched = (value, path) => value === null || typeof value !== "object" ? value : new Proxy(value, {
  get(held, name) {
    const isOurs = typeof name === "string" && name !== "then" && (!Array.isArray(held) || /^\\d+$/.test(name));
    if (!isOurs) return Reflect.get(held, name);
    const at = Array.isArray(held) ? `${path}[]` : `${path}.${name}`;
    window.read.add(at);
    if (!(name in held)) window.missing.add(at);
    return watched(held[name], at);
  },
});
const json = Response.prototype.json;
Response.prototype.json = async function () { return watched(await json.call(this), "status"); };
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    if shutil.which("chromium") is None:
        if os.environ.get("CI") == "true" and "WITHOUT_CHROMIUM" not in os.environ:
            pytest.fail("CI needs Chromium: apt-get install chromium")
        pytest.skip("no chromium on the PATH")
    with Chromium() as chromium:
        chromium.before(WATCHED)
        yield chromium


def phase(browser: Chromium) -> str:
    return str(browser.value("document.body.dataset.phase"))


def seen(browser: Chromium, name: str) -> None:
    """At each width and in each scheme: nothing is wider than the page, and a picture is kept."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    for scheme, width in itertools.product(("light", "dark"), WIDTHS):
        browser.look(width, scheme=scheme)
        assert browser.value("document.documentElement.scrollWidth") <= width, (name, scheme, width)
        browser.picture(PICTURES / f"{name}-{width}-{scheme}.png")


# On events that the test makes


class Served(Shown):
    """What is shown, served on the real clock."""

    def __init__(self, deployment: Deployment = DEPLOYMENT, port: int = 0) -> None:
        super().__init__(deployment)
        self.events._date = time.time
        self.server = HealthServer(
            "127.0.0.1", port, latest=lambda: self.events.latest, limits=LIMITS, page_of=deployment
        )

    def turn(self, seconds: float = 0.0) -> None:
        self.now = time.monotonic()
        self.events._publish_due = 0.0  # each turn is to be seen
        super().turn(seconds)


@contextmanager
def served(deployment: Deployment = DEPLOYMENT, port: int = 0) -> Iterator[Served]:
    shown = Served(deployment, port)
    try:
        yield shown
    finally:
        shown.server.close()


def busy(shown: Served) -> None:
    """A worker that has something to show everywhere."""
    held = [Partition("payments.requests.v2", number) for number in range(30)]
    shown.events.model_warmed(f"{MARKUP}fraud", MARKUP, "cuda:0")
    shown.events.assigned([*held, Partition(MARKUP, 0)])
    shown.events.bounded(lanes=2, batch=32, records=20_000, rows=131_072, size=64 << 20, run=60.0)
    shown.events.consumer_seen(1, {p: Standing(0, 1000 * p.number + 3) for p in held})
    shown.events.paused(is_paused=True)
    shown.ledger.rows, shown.ledger.size = 120_000, 60 << 20
    shown.ledger.oldest = {p: time.monotonic() - 70 * p.number for p in held}


def work(shown: Served) -> None:
    for reason in ClosedBy:
        shown.events.batch_closed(batch(10, reason), 0.01)
    shown.events.batch_ran(10, 0.2, None)
    shown.events.taken(100)
    shown.events.settled({time.monotonic() - 0.02: 90, time.monotonic() - 2.0: 10}, time.monotonic())
    reject(shown.events, 7, f"expected {MARKUP}, got 'a secret'")
    shown.turn()


def test_every_field_that_the_page_reads_is_in_status_and_every_field_there_is_read(browser: Chromium) -> None:
    """Also those of lists; and what comes from outside is text, not markup."""
    with served(STATEFUL) as shown:
        busy(shown)
        shown.turn()
        browser.look(1600)
        browser.go(shown.server.url)
        browser.wait(lambda: phase(browser) == "serving", "it serves")
        work(shown)
        browser.wait(lambda: browser.text("#answers-note") == "100 acknowledged", "answers are drawn")
        seen(browser, "busy")
        shown.states.restoring = 1
        shown.turn()
        browser.wait(lambda: phase(browser) == "restoring", "how much is left is read, too")

        assert browser.value("[...missing]") == []
        assert set(leaves(shown.status, "status")) - set(browser.value("[...read]")) == set()
        assert browser.text("h1") == f"{MARKUP}fraud"
        assert f"{MARKUP}/0" in browser.text("#partitions")
        assert browser.text("#reasons li").startswith(f"expected {MARKUP}, got '…'")
        assert browser.value("document.querySelectorAll('img, [onerror]').length") == 0
        assert browser.value("[...document.querySelectorAll('#replicas a')].map((a) => a.href)") == [
            "http://worker-1:8080/"
        ]
        assert browser.complaints == []


def leaves(value: Any, path: str) -> Iterator[str]:
    """The path of each field that holds no other fields."""
    if isinstance(value, dict):
        for name, held in value.items():
            yield from leaves(held, f"{path}.{name}")
    elif isinstance(value, list):
        for held in value:
            yield from leaves(held, f"{path}[]")
    else:
        yield path


def test_each_phase_has_a_word_and_a_reason(browser: Chromium) -> None:
    """From the start, before there is any number, to the drain."""
    with served(STATEFUL) as shown:
        browser.go(shown.server.url)
        browser.wait(lambda: browser.text("#phase") == "Starting", "it starts")
        assert browser.text("#why") == "The model is not loaded yet."
        assert browser.text("#latency") == "–"
        seen(browser, "starting")

        busy(shown)
        shown.states.restoring, shown.states.left_to_restore = 2, 45_000
        shown.turn()
        browser.wait(lambda: browser.text("#phase") == "Reading states back", "it restores")
        assert "2 partitions, about 45,000 records to go" in browser.text("#state")
        seen(browser, "restoring")

        shown.states.restoring = 0
        shown.events.consumer_seen(0, {Partition("payments.requests.v2", 0): Standing(0, 3)})
        shown.turn()
        browser.wait(lambda: browser.text("#phase") == "Cut off from Kafka", "it is cut off")
        seen(browser, "cut-off")

        shown.events.consumer_seen(1, {})
        shown.signals.stop_asked = True
        shown.turn()
        browser.wait(lambda: browser.text("#phase") == "Draining", "it drains")
        seen(browser, "draining")


def test_a_worker_that_went_away_is_said_to_be_and_the_page_goes_on_with_the_next(browser: Chromium) -> None:
    """On the same port: with the time of the last answer, and charts that begin anew."""
    with served() as first:
        busy(first)
        first.turn()
        browser.go(first.server.url)
        browser.wait(lambda: phase(browser) == "serving", "it serves")
        port = first.server.port
    browser.wait(lambda: phase(browser) == "gone", "it is gone")

    assert "The worker has ended, or cannot be reached. Last answer at " in browser.text("#why")
    assert browser.value("document.title").startswith("No answer")

    with served(port=port) as second:
        browser.wait(lambda: phase(browser) == "starting", "the next one starts")
        busy(second)
        second.turn()
        browser.wait(lambda: phase(browser) == "serving", "the next one serves")


def test_an_answer_that_is_none_is_said(browser: Chromium) -> None:
    """The page was switched off, or something else listens there."""
    with served() as shown:
        browser.go(shown.server.url)
        browser.wait(lambda: phase(browser) == "starting", "it starts")
        port = shown.server.port
    other = HealthServer("127.0.0.1", port, latest=lambda: shown.events.latest, limits=LIMITS)
    try:
        browser.wait(lambda: browser.text("#why").startswith("The worker answers 404."), "it says so")
    finally:
        other.close()


def test_the_page_is_used_with_a_keyboard(browser: Chromium) -> None:
    """Each thing that can be reached is in the order of reading and shows that it is; Pause stops the questions."""
    with served() as shown:
        busy(shown)
        shown.turn()
        browser.look(1600)
        browser.go(shown.server.url)
        browser.wait(lambda: phase(browser) == "serving", "it serves")

        reached = []
        for _ in range(7):
            browser.press("Tab")
            reached.append(
                browser.value("(({id, innerText, role}) => role || id || innerText)(document.activeElement)")
            )
            assert browser.value("getComputedStyle(document.activeElement).outlineStyle") == "solid", reached
        assert reached == ["Skip to the figures", "pause", "region", "metrics", "healthz", "readyz", "status"]

        browser.value("document.getElementById('pause').focus()")
        browser.press(" ", " ")
        assert browser.value("document.getElementById('pause').ariaPressed") == "true"
        time.sleep(2.5)  # what was asked before is drawn
        shown.signals.stop_asked = True
        shown.turn()
        time.sleep(3.5)
        assert phase(browser) == "serving"
        browser.press(" ", " ")
        browser.wait(lambda: phase(browser) == "draining", "it goes on")


def test_a_screen_reader_is_given_landmarks_names_and_headers(browser: Chromium) -> None:
    """One heading for the page, a name for each table and region, and a column's header for each cell."""
    with served(STATEFUL) as shown:
        busy(shown)
        shown.turn()
        browser.go(shown.server.url)
        browser.wait(lambda: phase(browser) == "serving", "it serves")
        work(shown)
        browser.wait(lambda: browser.text("#answers-note") == "100 acknowledged", "answers are drawn")

        tree = browser.tree()

        roles = [role for role, _ in tree]
        assert [roles.count(role) for role in ("banner", "main", "contentinfo")] == [1, 1, 1]
        assert not [
            node for node in tree if node[0] in {"table", "region", "navigation", "button", "link"} and not node[1]
        ]
        assert roles.count("columnheader") == 4 + 4 + 3 + 3
        assert "rowheader" in roles
        assert ("status", "") in tree
        assert browser.value("document.querySelectorAll('h1').length") == 1
        assert browser.value("document.querySelectorAll('[aria-live], [role=status], [role=alert]').length") == 2


# On a real worker


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        for topic in ("requests", "answers", "rejected"):
            broker.create_topic(topic)
        yield broker


@contextmanager
def worker(broker: EmbeddedBroker, **more: str) -> Iterator[Replica]:
    settings = {
        "MODEL__PATH": str(MODEL),
        "KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "KAFKA__REQUEST_TOPICS": "requests",
        "KAFKA__RESPONSE_TOPIC": "answers",
        "KAFKA__DEAD_LETTER_TOPIC": "rejected",
        "KAFKA__GROUP_ID": "digits",
        "KAFKA__CONFIG": json.dumps(CLIENT_CONFIG),
        "BATCHING__MAX_BATCH_SIZE": "64",
        **more,
    }
    with Replica(settings, os.environ) as replica:
        replica.wait_until_ready()
        yield replica


class Publisher:
    """Some hundred requests a second until it is closed, and bad ones among them once it is told to."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 2, "log_level": 0})
        self._requests = itertools.cycle(requests(held_out()))
        self._over = threading.Event()
        self.is_bad = False
        self._thread = threading.Thread(target=self._publish)
        self._thread.start()

    def _publish(self) -> None:
        for round_number in itertools.count():
            for request in itertools.islice(self._requests, 20):
                self._producer.produce("requests", request.value, headers=list(request.headers))
            if self.is_bad:
                self._producer.produce("requests", b"\0" * 12, headers=[("content-type", b"application/octet-stream")])
                pixels = {"name": "pixels", "shape": [1, 64], "datatype": "FP32", "data": [0.0] * 64}
                named = json.dumps({"model_name": MARKUP, "inputs": [pixels]}).encode()
                self._producer.produce("requests", named, headers=[("content-type", b"application/json")])
            self._producer.poll(0)
            if self._over.wait(0.03 + 0.02 * (round_number % 50) / 50):
                return

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._producer.flush(10)


def test_a_real_worker_is_seen_at_rest_under_load_with_rejections_and_after_its_end(
    browser: Chromium, broker: EmbeddedBroker
) -> None:
    """Its figures are those that it counts."""
    with worker(broker) as replica:
        browser.look(1600)
        browser.go(replica.url)
        browser.wait(lambda: phase(browser) == "serving" and "4 held" in browser.text("#partitions-of"), "it serves")
        browser.wait(lambda: browser.text("#requests").startswith("0"), "nothing comes")
        assert browser.text("#rejections") == "None since the start."
        seen(browser, "at-rest")

        publisher = Publisher(broker)
        try:
            browser.wait(lambda: figure(browser, "#answers") > 100, "answers go out")
            time.sleep(LOOKS * EVERY)  # for a chart to look at
            assert "linger" in browser.text("#batches")
            assert browser.text("#latency").endswith("p50")
            seen(browser, "under-load")

            publisher.is_bad = True
            browser.wait(lambda: "NOT_FOUND" in browser.text("#rejections"), "rejections are counted")
            browser.wait(lambda: "got 12 bytes" in browser.text("#reasons"), "reasons are shown")
            assert MARKUP not in browser.text("body")
            time.sleep(EVERY)
            seen(browser, "with-rejections")
        finally:
            publisher.close()
        browser.wait(lambda: figure(browser, "#requests") == 0, "nothing comes any more")
        counted = replica.total("records_settled_total")
        assert browser.text("#answers-note") == f"{counted:,.0f} acknowledged"
        assert browser.complaints == []

        replica.stop()
        browser.wait(lambda: phase(browser) == "gone", "it is gone")
        seen(browser, "after-its-end")


def figure(browser: Chromium, selector: str) -> float:
    text = browser.text(selector).split(" ")[0].replace(",", "")
    return float(text) if text != "–" else -1.0


def test_a_worker_that_stands_still_is_told_from_one_that_ended(browser: Chromium, broker: EmbeddedBroker) -> None:
    """It takes connections and does not answer; once it does, the page goes on."""
    with worker(broker) as replica:
        browser.go(replica.url)
        browser.wait(lambda: phase(browser) == "serving", "it serves")

        os.kill(replica.pid, signal.SIGSTOP)
        browser.wait(
            lambda: browser.text("#why").startswith("The worker does not answer. Last answer at"), "it is still"
        )
        os.kill(replica.pid, signal.SIGCONT)

        browser.wait(lambda: phase(browser) == "serving", "it goes on")


def test_the_log_says_where_the_page_is_and_a_setting_switches_it_off(broker: EmbeddedBroker) -> None:
    """`page` beside `url`; none where there is none."""
    for wanted in ("true", "false"):
        with worker(broker, TELEMETRY__PAGE=wanted) as replica:
            line = next(line for line in replica.log().splitlines() if '"http_listening"' in line)

        address = json.loads(line)["page"]
        assert address == (f"{replica.url}/" if wanted == "true" else None)


def test_what_is_built_has_the_page_s_files(tmp_path: Path) -> None:
    """The wheel and the images are made of this."""
    subprocess.run(
        [
            *(sys.executable, "-c", "import setuptools; setuptools.setup()", "-q"),
            *("egg_info", "--egg-base", str(tmp_path), "build_py", "--build-lib", str(tmp_path / "lib")),
        ],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )

    built = {path.name for path in (tmp_path / "lib/worker/telemetry/page").iterdir()}
    assert {name for name, _ in FILES.values()} <= built
