"""The first settings of a worker for a model at hand: what `init` and `records infer` write. It runs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from worker.inference.declared_signature import Declared
from worker.inference.model_loading import inspect
from worker.settings import load
from worker.tools.settings_file import settings_file

# Values for settings that neither an option nor the environment has.
_UNNAMED = {
    "WORKER_KAFKA__BOOTSTRAP_SERVERS": "localhost:9092",
    "WORKER_KAFKA__REQUEST_TOPICS": "requests",
    "WORKER_KAFKA__RESPONSE_TOPIC": "answers",
    "WORKER_KAFKA__DEAD_LETTER_TOPIC": "rejected",
}


class FirstSettings(NamedTuple):
    """The file's text, the settings in it as variables, and what the model's file says."""

    text: str
    environ: Mapping[str, str]
    seen: Declared


def first_settings(given: Mapping[str, str], folder: Path) -> FirstSettings:
    """The settings for the model of these variables, in a file of this folder. Raises `BadConfiguration`."""
    environ = {**_UNNAMED, "WORKER_KAFKA__GROUP_ID": Path(given["WORKER_MODEL__PATH"]).stem, **given}
    seen = inspect(load(None, environ).model.model_copy(update={"fixed_batch": "pad"}))
    if seen.fixed_rows is not None:  # the model was exported for this number of rows
        rows = (
            {"WORKER_BATCHING__MAX_BATCH_SIZE": "1"} if seen.fixed_rows == 1 else {"WORKER_MODEL__FIXED_BATCH": "pad"}
        )
        environ = {**rows, **environ}
    return FirstSettings(settings_file(load(None, environ), environ, folder), environ, seen)
