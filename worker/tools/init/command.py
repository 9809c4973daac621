"""`inference-worker init`: writes a first settings file for a model, and names the next commands.

It reads the model's file without running it. It does not ask the cluster: `check`, the next command, does that. It
changes only the settings file.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from worker.core.failures import BadConfiguration
from worker.inference.declared_signature import Declared
from worker.inference.model_loading import inspect
from worker.settings import load
from worker.terminal.terminal import console, count, printable, say
from worker.tools.init.options import InitOrder
from worker.tools.settings_file import settings_file

# Values for settings that neither an option nor the environment has.
_UNNAMED = {
    "WORKER_KAFKA__BOOTSTRAP_SERVERS": "localhost:9092",
    "WORKER_KAFKA__REQUEST_TOPICS": "requests",
    "WORKER_KAFKA__RESPONSE_TOPIC": "answers",
    "WORKER_KAFKA__DEAD_LETTER_TOPIC": "rejected",
}


def init(order: InitOrder) -> int:
    """Write the file. Raises `BadConfiguration` for a model that cannot be served, and if the file exists already."""
    if order.config.exists() and not order.force:
        raise BadConfiguration(f"{order.config} is there already; --force writes over it, --config names another")
    given = {name: value for name, value in order.over(os.environ).items() if value}
    if (path := given.get("WORKER_MODEL__PATH")) is None:
        raise BadConfiguration("which model? `inference-worker init --model model.onnx` names its file")
    environ = {**_UNNAMED, "WORKER_KAFKA__GROUP_ID": Path(path).stem, **given}
    seen = inspect(load(None, environ).model.model_copy(update={"fixed_batch": "pad"}))
    if seen.fixed_rows is not None:  # the model was exported for this number of rows
        rows = (
            {"WORKER_BATCHING__MAX_BATCH_SIZE": "1"} if seen.fixed_rows == 1 else {"WORKER_MODEL__FIXED_BATCH": "pad"}
        )
        environ = {**rows, **environ}
    settings = load(None, environ)
    text = settings_file(settings, environ, order.config.parent)
    try:
        with order.config.open("w" if order.force else "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise BadConfiguration(f"--config {order.config}: cannot be written: {error.strerror}") from None
    screen = console()
    say(screen, printable(f"{order.config} is written"))
    for told in _rows(seen):
        say(screen, f"  {printable(told)}")
    say(screen, "Next:")
    for words in (["check", "--config", str(order.config), "--create-topics"], ["run", "--config", str(order.config)]):
        say(screen, "  " + printable(shlex.join(["inference-worker", *words])))
    return 0


def _rows(seen: Declared) -> Iterator[str]:
    """Yields the lines about the model."""
    signature, rows = seen.signature, seen.fixed_rows
    yield f"{signature.name} takes {signature.takes} and gives {', '.join(map(str, signature.outputs))}"
    if rows is not None:
        yield f"exactly {count(rows, 'row')} at once; exported for any number it would serve more"
    if any(None in spec.dims for spec in signature.inputs):
        yield "requests of different lengths share no batch unless buckets pad them: see `profile --lengths`"
