"""The command measures the worker on a GPU part by part, each in a process with a time limit and a JSON file.

    python -m bench.gpu                                   # every part, the most important one first
    python -m bench.gpu --part main --limit 570           # one part, within so many seconds
    python -m bench.gpu --markdown build/gpu              # the tables of the measured parts
    python -m bench.gpu --device cpu --network "small MLP" --seconds 0.3 --batches 1,8   # a rehearsal

A line is in the file as soon as it is measured. If a case fails, the file has the reason, and the next case goes on.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import confluent_kafka
import numpy as np
import onnxruntime

from bench.gpu import copies, hosts, knee, lanes, main
from bench.gpu.device import Device, NoNvmlError
from bench.gpu.networks import NAMES, NETWORKS, PRECISIONS
from bench.gpu.results import DONE, Case, Line, Part, Results, Stage, cut, page, rounded
from bench.ground import ROOT
from bench.tables import processor
from tests.kafka.broker import ADDRESS_VARIABLE, JvmBroker, NoBrokerError, any_broker
from tests.kafka.cluster import Cluster

PARTS: tuple[Part, ...] = (main.PART, hosts.PART, knee.PART, copies.PART, lanes.PART)
BY_NAME = {part.name: part for part in PARTS}
BATCHES = tuple(2**n for n in range(10))
GRACE = 10.0  # seconds for a part that is cut to end its workers
RESERVE = 5.0  # seconds of the limit that are not used, so that the command ends before its caller ends it
LONGEST_REASON = 400


def run() -> int:
    """Run the command line. Returns 1 if a part did not reach its end."""
    asked = _arguments()
    if asked.markdown:
        sys.stdout.write(page(asked.markdown, PARTS))
        return 0
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.child:
        return _child(BY_NAME[asked.child], asked)
    return _all([BY_NAME[name] for name in asked.part], asked)


def _arguments() -> argparse.Namespace:
    out = Path(os.environ.get("OUT") or ROOT / "build" / "gpu")
    parser = argparse.ArgumentParser(description="The worker on a GPU.")
    parser.add_argument("--part", nargs="+", choices=BY_NAME, default=[*BY_NAME], help="all unless given")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--seconds", type=float, default=3.0, help="for one measurement")
    parser.add_argument("--limit", type=float, help="seconds for all parts together; each has its own beside it")
    parser.add_argument("--network", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    parser.add_argument("--root", nargs="+", default=[], help="checkouts whose workers take part in `host`, too")
    parser.add_argument("--batches", type=_numbers, default=BATCHES, help="row counts of the part `knee`")
    parser.add_argument(
        "--out", type=Path, default=out, help="folder of the JSON files; $OUT or build/gpu unless given"
    )
    parser.add_argument("--models", type=Path, help="folder in which the models are kept; else they are built anew")
    parser.add_argument("--markdown", type=Path, metavar="FOLDER", help="print the tables of what is in this folder")
    parser.add_argument("--child", choices=BY_NAME, help=argparse.SUPPRESS)
    return parser.parse_args()


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


# ---- All parts: a process for each ----------------------------------------------------------------------------------


def _all(parts: Sequence[Part], asked: argparse.Namespace) -> int:
    until = time.monotonic() + (asked.limit - RESERVE if asked.limit else float("inf"))
    with ExitStack() as stack:
        servers, why = _broker(stack) if any(part.has_kafka for part in parts) else ("", "")
        folder = asked.models or stack.enter_context(tempfile.TemporaryDirectory(prefix="gpu-models-"))
        ended = {part.name: why if why and part.has_kafka else _one(part, folder, servers, until) for part in parts}
    for name, how in ended.items():
        if how != DONE:
            cut(asked.out, name, how)
            _tell(f"{name}: {how}")
    sys.stdout.write(page(asked.out, parts))
    return int(any(how != DONE for how in ended.values()))


def _broker(stack: ExitStack) -> tuple[str, str]:
    """Starts the broker. Returns its address, or why there is none. It has more memory than in tests, for gigabytes."""
    JvmBroker.java_options = ("-Xmx2g",)
    try:
        broker = any_broker()
    except NoBrokerError as reason:
        return "", f"not run: no Kafka: {reason}"
    stack.callback(broker.remove)
    return broker.bootstrap_servers, ""


def _one(part: Part, folder: Path | str, servers: str, until: float) -> str:
    """Run one part. Returns how it ended."""
    limit = min(part.limit, until - time.monotonic())
    if limit <= 0:
        return "not run: the time for all parts was over"
    _tell(f"== {part.name}, {limit:.0f} s at most")
    program = [sys.executable, "-m", "bench.gpu", *sys.argv[1:], "--child", part.name, "--models", str(folder)]
    environment = {**os.environ, ADDRESS_VARIABLE: servers, "ORT_DISABLE_TELEMETRY": "1"}
    # It gets its own process group, so that its workers end with it, but no session: there they would outlive us.
    process = subprocess.Popen(program, env=environment, process_group=0)
    try:
        code = process.wait(limit)
    except subprocess.TimeoutExpired:
        return f"cut after {limit:.0f} s"
    finally:
        _end(process)
    return DONE if code == 0 else f"ended with {code}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let the part end its own processes; then end those that are left in its group."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            _tell("a part does not end by itself")
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


# ---- One part, in its own process -----------------------------------------------------------------------------------


def _child(part: Part, asked: argparse.Namespace) -> int:
    results = Results(asked.out, part.name, {"about": _about(asked)})
    try:
        for case in part.cases(_stage(asked)):
            _measure(case, results)
    except Exception as error:  # noqa: BLE001  # the file gets the reason why this part has no more lines
        results.end(f"failed: {_said(error)}")
        return 1
    results.end(DONE)
    return 0


def _measure(case: Case, results: Results) -> None:
    def add(line: Line) -> None:
        kept = rounded({**case.labels, **line})
        results.add(kept)
        _tell("  " + ", ".join(f"{key} {value}" for key, value in kept.items() if value not in (None, "")))

    try:
        for line in case.lines():
            add(line)
    except Exception as error:  # noqa: BLE001  # a failed case becomes a line, and the next case goes on
        add({"failed": _said(error)})


def _stage(asked: argparse.Namespace) -> Stage:
    networks = [each for each in NETWORKS if each.name in asked.network and each.precision in asked.precision]
    servers = os.environ.get(ADDRESS_VARIABLE)
    kafka = Cluster(servers) if servers else None
    asked.models.mkdir(parents=True, exist_ok=True)
    return Stage(asked.device, asked.seconds, networks, asked.batches, asked.models, kafka, _tell, asked.root)


def _about(asked: argparse.Namespace) -> str:
    try:
        gpu = Device().about if asked.device != "cpu" else "no GPU: a rehearsal on the CPU"
    except NoNvmlError as reason:
        gpu = f"a GPU that its driver does not tell of: {reason}"
    versions = f"Python {platform.python_version()}, onnxruntime {onnxruntime.__version__}, numpy {np.__version__}"
    cores = f"{os.cpu_count()} cores ({processor()})"
    clients = f"confluent-kafka {confluent_kafka.__version__}"
    when = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
    return f"{when}; {gpu}; {cores}; {versions}, {clients}; {asked.seconds:g} s a measurement"


def _said(error: Exception) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}…"


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(run())
