"""Debian's Chromium, driven over its own protocol on a pipe: no driver, no network port, no download.

Owns the process, its profile, and the page's console messages. One page at a time.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe"),
)
PATIENCE = 60.0  # longer than any machine needs, seconds


class Chromium:
    """A browser with one blank page."""

    def __init__(self) -> None:
        self._profile = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        asked, told = os.pipe(), os.pipe()
        ends = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (asked[0], told[1])]  # above 3 and 4, their final places
        self._process = subprocess.Popen(
            [
                *("bash", "-c", f'exec "$@" 3<&{ends[0]} 4>&{ends[1]}', "bash", "chromium", *FLAGS),
                *(f"--user-data-dir={self._profile.name}", "about:blank"),
            ],
            pass_fds=ends,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for fd in (asked[0], told[1], *ends):
            os.close(fd)
        self._requests = os.fdopen(asked[1], "wb", buffering=0)
        self._answers = os.fdopen(told[0], "rb")
        self._unread = b""
        self._number = 0
        self._session: str | None = None
        self.complaints: list[str] = []  # of the page: errors, and refusals of its security policy
        targets = self("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        self("Emulation.setScrollbarsHidden", hidden=True)  # they would change a picture's width
        for domain in ("Page", "Runtime", "Log", "Network"):
            self(f"{domain}.enable")

    def __call__(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command of the protocol, and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        self._requests.write(json.dumps(message).encode() + b"\0")
        while (answer := self._heard()).get("id") != self._number:
            self._note(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: dict[str, Any] = answer["result"]
        return result

    def _heard(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            chunk = os.read(self._answers.fileno(), 1 << 16)
            assert chunk, "Chromium has ended"
            self._unread += chunk
        text, _, self._unread = self._unread.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        parameters = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(parameters["exceptionDetails"]))
        elif message.get("method") == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.complaints.append(parameters["entry"]["text"])

    def look(self, width: int, height: int = 900, scheme: str = "light") -> None:
        """Set the page's size in CSS pixels, and the colour scheme that its reader prefers."""
        self("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def before(self, script: str) -> None:
        """Run this in every page before its own scripts."""
        self("Page.addScriptToEvaluateOnNewDocument", source=script)

    def go(self, url: str) -> None:
        """Load this address, with its scripts; forget the previous page's complaints."""
        self("Page.navigate", url="about:blank")
        self.complaints.clear()
        self("Page.navigate", url=url)
        self.wait(lambda: self.value("document.readyState") == "complete", f"{url} is loaded")

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        said = self("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in said, said["exceptionDetails"]
        return said["result"].get("value")

    def text(self, selector: str) -> str:
        """An element's visible text."""
        return str(self.value(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def wait(self, holds: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < deadline, f"{what}; the page reads:\n{self.text('body')}\n{self.complaints}"
            time.sleep(0.1)

    def picture(self, path: Path) -> None:
        """Write the whole page as a PNG."""
        shot = self("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        self._requests.close()
        self._answers.close()
        self._profile.cleanup()
