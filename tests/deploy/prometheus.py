"""A Prometheus of our own on loopback: scrapes given targets, evaluates the project's rules, answers queries."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.kafka.broker import free_port

START_TIMEOUT = 30.0  # half a second on an idle machine, seconds


class Prometheus:
    """Owns the process and its folder's content.

    Scrapes `targets` once a second as the job `inference-worker`, and itself as a foreign job.
    """

    def __init__(self, folder: Path, rules: Path, targets: Sequence[str]) -> None:
        address = f"127.0.0.1:{free_port()}"
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": [
                {"job_name": "inference-worker", "static_configs": [{"targets": list(targets)}]},
                {"job_name": "something-else", "static_configs": [{"targets": [address]}]},
            ],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        self._url = f"http://{address}"
        self._log = (folder / "prometheus.log").open("w+")
        self._process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={address}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def query(self, expression: str) -> list[tuple[Mapping[str, str], float]]:
        """Labels and value of each series now."""
        return [(found["metric"], float(found["value"][1])) for found in self.ask("query", query=expression)["result"]]

    def rules(self) -> list[Mapping[str, Any]]:
        """Each alert with its health, its last error and its state."""
        return [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]

    def ask(self, what: str, **parameters: str) -> Any:
        """The `data` of one answer of the HTTP API."""
        url = f"{self._url}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310  # our own loopback address
            return json.loads(answer.read())["data"]

    def wait_for_scrapes(self, count: int) -> None:
        """Wait until every target was scraped `count` times; fail the test when that takes too long."""
        deadline = time.monotonic() + START_TIMEOUT + count
        while not self._has_scraped(count):
            assert self._process.poll() is None, self._said()
            assert time.monotonic() < deadline, self._said()
            time.sleep(0.2)

    def _has_scraped(self, count: int) -> bool:
        try:
            found = self.query('count_over_time(up{job="inference-worker"}[5m])')
        except OSError:
            return False
        return bool(found) and all(scrapes >= count for _, scrapes in found)

    def _said(self) -> str:
        self._log.seek(0)
        return f"prometheus:\n{self._log.read()[-2000:]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()
