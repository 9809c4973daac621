"""The live page in a real Chromium, on made-up events, and on a real worker with the mock broker.

Pictures of every state lie in `.cache/page/` afterwards; `README` and `docs/` show one of them. Debian's package
`chromium` is enough.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
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
from tests.unit.telemetry.test_live_page import SETTINGS, Shown, reject
from tests.unit.test_settings import LEAST
from worker.core.records import ClosedBy, HostEnd, Partition, Standing
from worker.settings import Settings, load
from worker.telemetry import HttpServer, Pages
from worker.telemetry.pages import FILES
from worker.tools.demo.digits import MODEL, held_out, requests
from worker.tools.kafka.embedded import CLIENT_CONFIG, EmbeddedBroker
from worker.tools.processes import Replica

PICTURES = ROOT / ".cache" / "page"
WIDTHS = (400, 800, 1600)  # a phone, a tablet, a desk
EVERY = 2.0  # seconds between two answers that the page asks for
STATEFUL = load(
    None,
    {
        **LEAST,
        "WORKER_KAFKA__REQUEST_TOPICS": "payments.requests.v2",
        "WORKER_KAFKA__RESPONSE_TOPIC": "payments.answers.v2",
        "WORKER_KAFKA__GROUP_ID": "fraud-scoring-production",
        "WORKER_STATE__TENSORS": '{"h_in": "h_out"}',
        "WORKER_TELEMETRY__REPLICAS": "http://worker-1:8080/",
    },
)
PAGELESS = load(None, LEAST | {"WORKER_TELEMETRY__PAGE": "false"})
MARKUP = "<img src=x onerror=alert(1)>"
# Records each field of an answer that the page reads, and the ones that are missing.
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
    """Keep a picture at each width and in each scheme. Fails the test if something is wider than the page."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    for scheme, width in itertools.product(("light", "dark"), WIDTHS):
        browser.look(width, scheme=scheme)
        assert browser.value("document.documentElement.scrollWidth") <= width, (name, scheme, width)
        browser.picture(PICTURES / f"{name}-{width}-{scheme}.png")


# On made-up events


class Served(Shown):
    """Made-up events, served on the real clock."""

    def __init__(self, settings: Settings = SETTINGS, port: int = 0) -> None:
        super().__init__(settings)
        self.server = HttpServer("127.0.0.1", port, Pages(lambda: self.events.latest, settings).answer)

    def turn(self, seconds: float = 0.0) -> None:
        self.now = time.monotonic()
        self.events._publish_due = 0.0  # publish every turn
        super().turn(seconds)


@contextmanager
def served(settings: Settings = SETTINGS, port: int = 0) -> Iterator[Served]:
    shown = Served(settings, port)
    try:
        yield shown
    finally:
        shown.server.close()


def busy(shown: Served) -> None:
    """Give the worker something to show everywhere."""
    held = [Partition("payments.requests.v2", number) for number in range(30)]
    shown.events.model_warmed(f"{MARKUP}fraud", MARKUP, "cuda:0")
    shown.events.host_ended(HostEnd.CRASH, "SIGSEGV", 1)
    shown.events.host_started(os.getpid(), 0.5, "SIGSEGV")
    shown.events.assigned([*held, Partition(MARKUP, 0)])
    shown.events.bounded(lanes=2, batch=32, records=20_000, rows=131_072, size=64 << 20, run=60.0, memory=2 << 30)
    shown.events.consumer_seen(1, {p: Standing(0, 1000 * p.number + 3) for p in held})
    shown.ledger.rows, shown.ledger.size = 120_000, 60 << 20
    shown.ledger.oldest = {p: time.monotonic() - 70 * p.number for p in held}


def work(shown: Served) -> None:
    for reason in ClosedBy:
        shown.events.batch_closed(batch(10, reason), 0.01)
    shown.events.batch_ran(10, 0.2, None)
    shown.events.taken(110)
    shown.events.unanswered(10)
    shown.events.settled({time.monotonic() - 0.02: 100, time.monotonic() - 2.0: 10}, time.monotonic())
    reject(shown.events, 7, f"expected {MARKUP}, got 'a secret'")
    shown.turn()


def test_every_field_that_the_page_reads_is_in_status_and_every_field_there_is_read(browser: Chromium) -> None:
    """This includes fields in lists; values from outside are shown as text, not markup."""
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
        assert MARKUP in browser.text("#partitions")
        assert browser.text("#reasons li").startswith(f"expected {MARKUP}, got '…'")
        assert " since the start, last " in browser.text("#reasons li small")
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
    """The phases run from the start, before any number, to the drain and the next worker on this port."""
    with served(STATEFUL) as shown:
        browser.go(shown.server.url)
        browser.wait(lambda: browser.text("#phase") == "Starting", "it starts")
        assert browser.text("#why") == "The model is not loaded yet."
        assert browser.text("#latency") == "–"

        busy(shown)
        shown.states.restoring, shown.states.left_to_restore = 2, 45_000
        shown.turn()
        browser.wait(lambda: browser.text("#phase") == "Reading states back", "it restores")
        assert "2 partitions, about 45,000 records to go" in browser.text("#state")

        shown.states.restoring, shown.worker.running_since = 0, time.monotonic() - 60.0

        def hangs() -> bool:
            shown.turn()
            return browser.text("#verdict") == "One run has gone on for 1 min, and nothing is answered meanwhile."

        browser.wait(hangs, "a run hangs")

        shown.worker.running_since = None
        shown.events.waits_for_schema(Partition("payments.requests.v2", 0), "17", "connection refused")
        shown.worker.registry_away_since = time.monotonic() - 90.0
        shown.turn()
        browser.wait(lambda: "schema comes: 1 of 31" in browser.text("#verdict"), "a partition waits for a schema")
        assert "the registry has not answered for " in browser.text("#verdict")
        assert "no answer for 2 min" in browser.text("#setup")
        seen(browser, "waits-for-schema")

        shown.events.consumer_seen(0, {Partition("payments.requests.v2", 0): Standing(0, 3)})
        shown.turn()
        browser.wait(lambda: browser.text("#phase") == "Cut off from Kafka", "it is cut off")

        shown.events.consumer_seen(1, {})
        shown.events.host_ended(HostEnd.CRASH, "SIGSEGV", 1)
        shown.turn()
        browser.wait(lambda: browser.text("#verdict").startswith("The model's process ended "), "its host ended")

        shown.worker.stop_asked = True
        shown.turn()
        browser.wait(lambda: browser.text("#phase") == "Draining", "it drains")
        port = shown.server.port
    browser.wait(lambda: phase(browser) == "gone", "it is gone")
    assert "The worker has ended, or cannot be reached. Last answer at " in browser.text("#why")

    with served(port=port):
        browser.wait(lambda: phase(browser) == "starting", "the next one starts")
    other = HttpServer("127.0.0.1", port, Pages(lambda: shown.events.latest, PAGELESS).answer)
    try:
        browser.wait(lambda: browser.text("#why").startswith("The worker answers 404."), "it has no page")
    finally:
        other.close()


# On a real worker


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        for topic in ("requests", "answers", "rejected"):
            broker.create_topic(topic)
        yield broker


@pytest.fixture
def replica(broker: EmbeddedBroker) -> Iterator[Replica]:
    settings = {
        "MODEL__PATH": str(MODEL),
        "MODEL__NAME": "digits",
        "KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "KAFKA__REQUEST_TOPICS": "requests",
        "KAFKA__RESPONSE_TOPIC": "answers",
        "KAFKA__DEAD_LETTER_TOPIC": "rejected",
        "KAFKA__GROUP_ID": "digits",
        "KAFKA__CONFIG": json.dumps(CLIENT_CONFIG),
        "BATCHING__MAX_BATCH_SIZE": "64",
    }
    with Replica(settings, os.environ) as replica:
        replica.wait_until_ready()
        yield replica


class Publisher:
    """Publishes requests in bursts, some of them bad."""

    def __init__(self, servers: str) -> None:
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 2, "log_level": 0})
        self._requests = itertools.cycle(requests(held_out()))

    def publish(self, bad: int = 0) -> int:
        """Publish a burst. Returns the number of unsent requests."""
        for request in itertools.islice(self._requests, 200):
            self._producer.produce("requests", request.value, headers=list(request.headers))
        for _ in range(bad):
            self._producer.produce("requests", b"\0" * 12, headers=[("content-type", b"application/octet-stream")])
        return self._producer.flush(10)


def test_a_real_worker_is_seen_at_rest_under_load_with_rejections_and_after_its_end(
    browser: Chromium, broker: EmbeddedBroker, replica: Replica
) -> None:
    """The page shows and judges the worker's own figures, and tells a worker that stands still from a dead one."""
    browser.look(1600)
    browser.go(replica.url)
    browser.wait(lambda: phase(browser) == "serving" and "4 held" in browser.text("#partitions-of"), "it serves")
    browser.wait(lambda: browser.text("#verdict") == "Idle.", "nothing comes")
    assert browser.text("#rejections") == "None since the start."
    seen(browser, "at-rest")

    line = next(json.loads(line) for line in replica.log().splitlines() if '"http_listening"' in line)
    assert line["page"] == f"{replica.url}/"
    publisher = Publisher(broker.bootstrap_servers)
    browser.wait(lambda: publisher.publish() or figure(browser, "#answers") > 100, "answers go out")
    browser.wait(lambda: publisher.publish(bad=5) or "got 12 bytes" in browser.text("#reasons"), "reasons are shown")
    assert "linger" in browser.text("#batches")
    assert browser.text("#latency").endswith("p50")
    assert "busy" in browser.text("#verdict")
    seen(browser, "under-load")
    browser.wait(lambda: figure(browser, "#requests") == 0, "nothing comes any more")
    counted = replica.totals()["records_settled_total"]
    assert browser.text("#answers-note") == f"{counted:,.0f} acknowledged"
    assert browser.complaints == []

    os.kill(replica.pid, signal.SIGSTOP)
    browser.wait(lambda: browser.text("#why").startswith("The worker does not answer. Last answer at"), "it is still")
    os.kill(replica.pid, signal.SIGCONT)
    browser.wait(lambda: phase(browser) == "serving", "it goes on")
    replica.stop()
    browser.wait(lambda: phase(browser) == "gone", "it is gone")


def figure(browser: Chromium, selector: str) -> float:
    text = browser.text(selector).split(" ")[0].replace(",", "")
    return float(text) if text != "–" else -1.0


def test_what_is_built_has_the_page_s_files(tmp_path: Path) -> None:
    """The wheel and the images are made from this build."""
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
