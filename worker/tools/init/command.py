"""`inference-worker init`: a settings file for the model and the cluster at hand, and what to do with it next.

Looks at the model's file without running it, and asks the cluster for its topics. Changes nothing but the file.
"""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from worker.core.failures import BadConfiguration
from worker.inference import Inspected, inspect
from worker.kafka.cluster.access import used
from worker.settings import Settings, load
from worker.settings.loading import USUAL_FILE
from worker.terminal.terminal import console, count, hang, printable, say
from worker.tools.init.cluster import ClusterSeen, look_at_cluster
from worker.tools.init.options import InitOrder
from worker.tools.init.settings_file import settings_file

# Where neither an option nor the environment names them.
_UNNAMED = {
    "WORKER_KAFKA__BOOTSTRAP_SERVERS": "localhost:9092",
    "WORKER_KAFKA__REQUEST_TOPICS": "requests",
    "WORKER_KAFKA__RESPONSE_TOPIC": "answers",
    "WORKER_KAFKA__DEAD_LETTER_TOPIC": "rejected",
}
# Topics of the cluster that are told beside ours.
_MOST_TOLD = 20


def init(order: InitOrder) -> int:
    """Raises `BadConfiguration` for a model that cannot be served, and for a file that is there."""
    if order.config.exists() and not order.force:
        raise BadConfiguration(f"{order.config} is there already; --force writes over it, --config names another")
    given = {name: value for name, value in order.over(os.environ).items() if value}
    environ = {**_UNNAMED, **given}
    if (path := environ.get("WORKER_MODEL__PATH")) is None:
        raise BadConfiguration("which model? `inference-worker init --model model.onnx` names its file")
    environ.setdefault("WORKER_KAFKA__GROUP_ID", Path(path).stem)
    model = load(None, environ).model
    seen = inspect(model.model_copy(update={"fixed_batch": "pad"}))
    environ = {**_for_rows(seen.fixed_rows), **environ}
    settings = load(None, environ)
    cluster = look_at_cluster(settings.kafka)
    why = _why_own_topics(order.config, settings, cluster) if "WORKER_KAFKA__REQUEST_TOPICS" not in given else ""
    if why:
        environ = {**environ, **_own_topics(Path(path).stem), **given}
        settings = load(None, environ)
        cluster = look_at_cluster(settings.kafka)
    text = settings_file(settings, environ, _found(settings, seen, cluster))
    try:
        with order.config.open("w" if order.force else "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise BadConfiguration(f"--config {order.config}: cannot be written: {error.strerror}") from None
    _tell(order.config, settings, seen, cluster, why)
    return 0


def _why_own_topics(file: Path, settings: Settings, cluster: ClusterSeen) -> str:
    """That another deployment reads the usual request topic: it would answer each request of this one, too."""
    for group, topic in cluster.shared_with.items():
        return f"group {group} reads {topic} already"
    beside = file.with_name(USUAL_FILE)
    group = "" if beside.absolute() == file.absolute() else _group_in(beside, settings.kafka.request_topics)
    return f"{beside} has those of group {group}" if group not in ("", settings.kafka.group_id) else ""


def _group_in(file: Path, topics: Sequence[str]) -> str:
    """The group of a settings file that reads one of these topics; empty where it reads none, or cannot be read."""
    try:
        kafka = tomllib.loads(file.read_text(encoding="utf-8")).get("kafka", {})
    except (OSError, ValueError):
        return ""
    is_shared = isinstance(kafka, dict) and not set(topics).isdisjoint(kafka.get("request_topics") or ())
    return str(kafka.get("group_id", "")) if is_shared else ""


def _own_topics(name: str) -> Mapping[str, str]:
    """Topics that are called after the model."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "-", name)
    usual = ("REQUEST_TOPICS", "RESPONSE_TOPIC", "DEAD_LETTER_TOPIC")
    return {f"WORKER_KAFKA__{key}": f"{plain}-{_UNNAMED[f'WORKER_KAFKA__{key}']}" for key in usual}


def _for_rows(fixed_rows: int | None) -> Mapping[str, str]:
    """What serves a model as it is that was exported for so many rows."""
    if fixed_rows is None:
        return {}
    return {"WORKER_BATCHING__MAX_BATCH_SIZE": "1"} if fixed_rows == 1 else {"WORKER_MODEL__FIXED_BATCH": "pad"}


def _rows(fixed_rows: int | None) -> str:
    if fixed_rows is None:
        return "any number of rows at once"
    return f"exactly {count(fixed_rows, 'row')} at once; exported for any number it would serve more"


def _found(settings: Settings, seen: Inspected, cluster: ClusterSeen) -> Mapping[str, Sequence[str]]:
    """Sentences about settings, by their variables."""
    takes, gives = seen.signature.takes, ", ".join(map(str, seen.signature.outputs))
    found = {
        "WORKER_MODEL__PATH": [f"it takes {takes}", f"it gives {gives}", f"it runs {_rows(seen.fixed_rows)}"],
        "WORKER_KAFKA__BOOTSTRAP_SERVERS": [_brokers(cluster)],
    }
    if any(None in spec.dims for spec in seen.signature.inputs):
        found["WORKER_BATCHING__BUCKETS"] = ["requests of different lengths share no batch unless they are padded"]
    for topic, setting in {} if cluster.silence else used(settings.kafka).items():
        found.setdefault(f"WORKER_KAFKA__{setting}", []).append(cluster.told_of(topic))
    if others := sorted(cluster.partitions.keys() - used(settings.kafka)):
        told = ", ".join(f"{topic} ({cluster.partitions[topic]})" for topic in others[:_MOST_TOLD])
        more = f" and {len(others) - _MOST_TOLD} more" if len(others) > _MOST_TOLD else ""
        found["WORKER_KAFKA__REQUEST_TOPICS"].append(f"other topics there, with their partitions: {told}{more}")
    return found


def _brokers(cluster: ClusterSeen) -> str:
    return "none answered when this was written" if cluster.silence else count(cluster.brokers, "broker")


def _tell(file: Path, settings: Settings, seen: Inspected, cluster: ClusterSeen, why_own: str) -> None:
    screen = console()
    say(screen, printable(f"{file} is written"))
    rows = [
        ("model", f"{seen.signature.name} takes {seen.signature.takes}; {_rows(seen.fixed_rows)}"),
        ("brokers", cluster.silence or f"{count(cluster.brokers, 'broker')} at {settings.kafka.bootstrap_servers}"),
        *(("topic" if at else "topics", cluster.told_of(topic)) for at, topic in enumerate(used(settings.kafka))),
    ]
    if why_own:
        rows.append(("", f"named after the model: {why_own}, and a second model needs topics of its own"))
    for group, topic in cluster.shared_with.items():
        rows.append(("", f"group {group} reads {topic} already, and answers each of its requests, too"))
    for name, told in rows:
        hang(screen, f"  {name:7}", printable(told))
    say(screen, "Next:")
    creating = " --create-topics" if used(settings.kafka).keys() - cluster.partitions.keys() else ""
    for command in (f"check{creating}", "run"):
        word, *options = command.split()
        say(screen, "  " + printable(shlex.join(["inference-worker", word, "--config", str(file), *options])))
