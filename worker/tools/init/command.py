"""`inference-worker init`: a settings file for the model and the cluster at hand, and what to do with it next.

Looks at the model's file without running it, and asks the cluster for its topics. Changes nothing but the file.
"""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from worker.core.failures import BadConfiguration
from worker.inference import Declared, inspect
from worker.kafka.client.command_clients import ANSWER_TIMEOUT, NO_LOG, client_log, topics_told
from worker.kafka.client.connecting import connect
from worker.kafka.cluster.access import used
from worker.kafka.cluster.survey import other_groups
from worker.settings import KafkaSettings, Settings, load
from worker.settings.loading import USUAL_FILE
from worker.terminal.terminal import console, count, hang, printable, say
from worker.tools.init.options import InitOrder
from worker.tools.init.settings_file import settings_file

# Where neither an option nor the environment names them.
_UNNAMED = {
    "WORKER_KAFKA__BOOTSTRAP_SERVERS": "localhost:9092",
    "WORKER_KAFKA__REQUEST_TOPICS": "requests",
    "WORKER_KAFKA__RESPONSE_TOPIC": "answers",
    "WORKER_KAFKA__DEAD_LETTER_TOPIC": "rejected",
}


class _Seen(NamedTuple):
    """The brokers or why none answers, the topics that we may see, and other groups that read our request topics.

    `topics`: with the number of their partitions. `readers`: each group with one of the topics.
    """

    brokers: str
    topics: Mapping[str, int] = {}
    readers: Mapping[str, str] = {}


def init(order: InitOrder) -> int:
    """Raises `BadConfiguration` for a model that cannot be served, and for a file that is there."""
    if order.config.exists() and not order.force:
        raise BadConfiguration(f"{order.config} is there already; --force writes over it, --config names another")
    given = {name: value for name, value in order.over(os.environ).items() if value}
    if (path := given.get("WORKER_MODEL__PATH")) is None:
        raise BadConfiguration("which model? `inference-worker init --model model.onnx` names its file")
    name = Path(path).stem
    environ = {**_UNNAMED, "WORKER_KAFKA__GROUP_ID": name, **given}
    seen = inspect(load(None, environ).model.model_copy(update={"fixed_batch": "pad"}))
    if seen.fixed_rows is not None:  # exported for so many rows
        rows = (
            {"WORKER_BATCHING__MAX_BATCH_SIZE": "1"} if seen.fixed_rows == 1 else {"WORKER_MODEL__FIXED_BATCH": "pad"}
        )
        environ = {**rows, **environ}
    settings = load(None, environ)
    cluster, why = _look(settings.kafka), ""
    if "WORKER_KAFKA__REQUEST_TOPICS" not in given and (why := _why_own_topics(order.config, settings, cluster)):
        plain = re.sub(r"[^A-Za-z0-9._-]", "-", name)
        own = {key: f"{plain}-{topic}" for key, topic in _UNNAMED.items() if "TOPIC" in key}
        environ = {**environ, **own, **given}
        settings = load(None, environ)
        cluster = _look(settings.kafka)
    text = settings_file(settings, environ, order.config.parent)
    try:
        with order.config.open("w" if order.force else "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise BadConfiguration(f"--config {order.config}: cannot be written: {error.strerror}") from None
    screen = console()
    say(screen, printable(f"{order.config} is written"))
    for name, told in _rows(settings, seen, cluster, why):
        hang(screen, f"  {name:7}", printable(told))
    say(screen, "Next:")
    creating = ["--create-topics"] if used(settings.kafka).keys() - cluster.topics.keys() else []
    for words in (["check", "--config", str(order.config), *creating], ["run", "--config", str(order.config)]):
        say(screen, "  " + printable(shlex.join(["inference-worker", *words])))
    return 0


def _look(kafka: KafkaSettings) -> _Seen:
    """A cluster that does not answer is no failure: a file can be written without it."""
    try:
        contact = connect(kafka, NO_LOG, ANSWER_TIMEOUT, kafka.response_topic)
    except BadConfiguration as refusal:
        return _Seen(str(refusal))
    readers = {} if contact.is_mock else other_groups(kafka, ANSWER_TIMEOUT, client_log())
    brokers = f"{count(len(contact.cluster.brokers), 'broker')} at {kafka.bootstrap_servers}"
    return _Seen(brokers, topics_told(contact.admin, ANSWER_TIMEOUT), readers)


def _why_own_topics(file: Path, settings: Settings, cluster: _Seen) -> str:
    """That another deployment reads the usual request topic: it would answer each request of this one, too."""
    for group, topic in cluster.readers.items():
        return f"group {group} reads {topic} already"
    usual = file.with_name(USUAL_FILE)
    try:
        kafka = {} if usual.resolve() == file.resolve() else tomllib.loads(usual.read_text(encoding="utf-8"))["kafka"]
        topics, group = kafka["request_topics"], kafka["group_id"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    is_shared = set(settings.kafka.request_topics) & set(topics) and group != settings.kafka.group_id
    return f"{usual} has those of group {group}" if is_shared else ""


def _rows(settings: Settings, seen: Declared, cluster: _Seen, why_own: str) -> Iterator[tuple[str, str]]:
    """What was found, row by row; a row without a name goes on with the one above."""
    signature, rows = seen.signature, seen.fixed_rows
    yield "model", f"{signature.name} takes {signature.takes} and gives {', '.join(map(str, signature.outputs))}"
    if rows is not None:
        yield "", f"exactly {count(rows, 'row')} at once; exported for any number it would serve more"
    if any(None in spec.dims for spec in signature.inputs):
        yield "", "requests of different lengths share no batch unless buckets pad them: see `profile --lengths`"
    yield "brokers", cluster.brokers
    topics = used(settings.kafka)
    for at, topic in enumerate(topics if cluster.topics else ()):
        told = "is not there yet: `check --create-topics` makes it"
        if there := cluster.topics.get(topic):
            told = f"has {count(there, 'partition')}"
        yield "" if at else "topics", f"{topic} {told}"
    if why_own:
        yield "", f"named after the model: {why_own}, and a second model needs topics of its own"
    for group, topic in cluster.readers.items():
        yield "", f"group {group} reads {topic} already, and answers each of its requests, too"
