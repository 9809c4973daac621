"""`/healthz`, `/readyz`, `/startupz`, `/metrics`, `/v2` and the live page over HTTP, on loopback unless told otherwise.

Its thread answers from the latest snapshot and touches no other state. Alive means that the loop turns and no inference
hangs. An absent broker does not count: a restart would not bring it back, and all replicas would restart at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from functools import cached_property
from http import HTTPStatus
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple

from worker.core.addresses import can_be_public, host_and_port
from worker.core.failures import BadConfiguration
from worker.telemetry.http_server import TEXT, Answer, HttpServer
from worker.telemetry.metrics import Snapshot
from worker.telemetry.model_pages import ROOT, model_page
from worker.telemetry.watchdog import TimeLimits

if TYPE_CHECKING:
    from worker.telemetry.metrics_page import MetricsPage

# Scrapers and load balancers ask for these by whatever name they know.
OPEN = frozenset({"/healthz", "/readyz", "/startupz", "/metrics", f"{ROOT}/health/live", f"{ROOT}/health/ready"})
_OTHER_NAME = (
    b"this worker does not know the name in the header Host: a page elsewhere may have made it lead here, to read what "
    b"it may not; ask by an IP address, by localhost or by a name without a dot, or name http://NAME/ in "
    b"WORKER_TELEMETRY__REPLICAS\n"
)


class Deployment(NamedTuple):
    """The settings that the page shows. `replicas`: where the others' pages are."""

    group: str
    requests: tuple[str, ...]
    answers: str
    guarantee: str
    lanes: int
    has_state: bool
    replicas: tuple[str, ...] = ()


def liveness(snapshot: Snapshot, now: float, limits: TimeLimits) -> str | None:
    """Why the worker counts as dead; None while it lives. A worker that has not begun to turn is starting, not dead."""
    if snapshot.turned_at is None:
        return None
    if snapshot.running_since is not None and now - snapshot.running_since > limits.run:
        return f"an inference has been running for {now - snapshot.running_since:.0f} s"
    if now - snapshot.turned_at > limits.turn:
        return f"the loop has not turned for {now - snapshot.turned_at:.0f} s"
    return None


def try_address(address: str) -> None:
    """Raises `BadConfiguration` when no server can listen on this address, on whatever port."""
    _listen(address, 0, lambda *_: (HTTPStatus.NOT_FOUND, b"", TEXT)).server_close()


def _listen(address: str, port: int, answer: Callable[[str, str, str], Answer]) -> HttpServer:
    try:
        return HttpServer(address, port, answer)
    except OSError as error:
        raise BadConfiguration(
            f"cannot listen on {address}:{port}: {error.strerror or error}; set WORKER_TELEMETRY__HTTP_ADDRESS and "
            "WORKER_TELEMETRY__HTTP_PORT (0 takes any free port)"
        ) from error


class HealthServer:
    """Listens from its making until `close`. `url` tells where."""

    def __init__(
        self,
        address: str,
        port: int,
        *,
        latest: Callable[[], Snapshot],
        limits: TimeLimits,
        page_of: Deployment | None = None,
        names: Collection[str] = (),
    ) -> None:
        """Port 0 takes any free one; `page_of` asks for the live page. Raises `BadConfiguration`.

        `names`: the public ones by which it may be asked for more than `OPEN`.
        """
        self._server = _listen(address, port, Pages(latest, limits, time.monotonic, page_of, names).answer)
        self._thread = Thread(target=self._server.serve_forever, args=(0.1,), name="http", daemon=True)
        self._thread.start()
        host, self.port = str(self._server.server_address[0]), int(self._server.server_address[1])
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Pages:
    """The answer to each path, as values. The live page and `/metrics` are imported when they are first asked for."""

    def __init__(
        self,
        latest: Callable[[], Snapshot],
        limits: TimeLimits,
        clock: Callable[[], float],
        page_of: Deployment | None = None,
        names: Collection[str] = (),
    ) -> None:
        self._names = {name.lower() for name in names}
        self._latest, self._limits, self._clock, self._page_of = latest, limits, clock, page_of
        self._began = clock()

    def answer(self, path: str, accept: str, host: str = "") -> Answer:
        """`host` is the header of that name; only programs that are no browser leave it out."""
        path = path.partition("?")[0]
        if path not in OPEN and not self._is_ours(host_and_port(host)[0].lower()):
            return HTTPStatus.MISDIRECTED_REQUEST, _OTHER_NAME, TEXT
        match path:
            case "/healthz" | "/v2/health/live":
                return _verdict(self._dead(self._latest()))
            case "/readyz" | "/v2/health/ready":
                return _verdict(self._latest().unready)
            case "/startupz":
                snapshot = self._latest()
                return _verdict(snapshot.unready if snapshot.turned_at is None else None)
            case "/metrics":
                return HTTPStatus.OK, *self._metrics.render(accept)
        if path == ROOT or path.startswith(f"{ROOT}/"):
            return model_page(path, self._latest())
        if self._page_of is not None and (found := self._live_page(path, self._page_of)) is not None:
            return HTTPStatus.OK, *found
        known = f"{'' if self._page_of is None else '/ '}/healthz /readyz /startupz /metrics {ROOT}\n"
        return HTTPStatus.NOT_FOUND, known.encode(), TEXT

    def _is_ours(self, name: str) -> bool:
        """Against DNS rebinding: a page elsewhere can have its own name lead here, and read what is answered to it."""
        return not can_be_public(name) or name in self._names

    def _dead(self, snapshot: Snapshot) -> str | None:
        return liveness(snapshot, self._clock(), self._limits)

    @cached_property
    def _metrics(self) -> MetricsPage:
        from worker.telemetry.metrics_page import MetricsPage  # noqa: PLC0415  # 14 ms, and some workers have no scraper

        return MetricsPage(self._latest, self._clock)

    def _live_page(self, path: str, page_of: Deployment) -> tuple[bytes, str] | None:
        from worker.telemetry.live_page import live_page  # noqa: PLC0415  # seldom looked at

        snapshot, now = self._latest(), self._clock()
        return live_page(path, page_of, snapshot, self._dead(snapshot), now, now - self._began)


def _verdict(wrong: str | None) -> Answer:
    if wrong is None:
        return HTTPStatus.OK, b"ok\n", TEXT
    return HTTPStatus.SERVICE_UNAVAILABLE, f"{wrong}\n".encode(), TEXT
