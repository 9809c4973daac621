"""The first settings of a worker for a model at hand: what `init` and `records infer` write. It runs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from worker.inference.declared_signature import Declared
from worker.inference.hugging_face import folder_of
from worker.inference.model_loading import inspect
from worker.settings import Settings, load
from worker.tools.records.proposal import Proposal
from worker.tools.records.section_text import section_text
from worker.tools.settings_file import comment, settings_file

# Values for settings that neither an option nor the environment has.
_UNNAMED = {
    "WORKER_KAFKA__BOOTSTRAP_SERVERS": "localhost:9092",
    "WORKER_KAFKA__REQUEST_TOPICS": "requests",
    "WORKER_KAFKA__RESPONSE_TOPIC": "answers",
    "WORKER_KAFKA__DEAD_LETTER_TOPIC": "rejected",
}

# The field that feeds a model in a folder, in words and as lines. A topic of pictures has each as a whole value.
_FED_BY = {
    "text": "the field that has the text",
    "image": 'each value is a picture; one in base64 in a JSON object is `field = "photo"`, without the encoding',
}
_LINES = {
    "text": '[records.text]\nfield = "text"',
    "image": '[records]\nencoding = "bytes"\n[records.image]\nfield = "$value"',
}


class FirstSettings(NamedTuple):
    """Settings as variables, and what the model's file says."""

    environ: Mapping[str, str]
    seen: Declared


def first_settings(given: Mapping[str, str]) -> FirstSettings:
    """The settings for the model of these variables. Raises `BadConfiguration`."""
    environ = {**_UNNAMED, "WORKER_KAFKA__GROUP_ID": Path(given["WORKER_MODEL__PATH"]).stem, **given}
    unjudged = {name: value for name, value in environ.items() if not name.startswith("WORKER_REGISTRY__")}
    seen = inspect(load(None, unjudged).model.model_copy(update={"fixed_batch": "pad"}))
    if seen.fixed_rows is not None:  # the model was exported for this number of rows
        rows = (
            {"WORKER_BATCHING__MAX_BATCH_SIZE": "1"} if seen.fixed_rows == 1 else {"WORKER_MODEL__FIXED_BATCH": "pad"}
        )
        environ = {**rows, **environ}
    return FirstSettings(environ, seen)


def first_file(environ: Mapping[str, str], folder: Path, proposal: Proposal | None, looked_at: int) -> str:
    """The text of a settings file in this folder, at its end the section that is proposed. Raises `BadConfiguration`.

    `looked_at`: the records that it was proposed from.
    """
    if proposal is None:
        settings = load(None, environ)
        return settings_file(settings, environ, folder) + _of_folder(settings)
    encoding = proposal.section.get("encoding", "json")
    settings = load(None, {**environ, "WORKER_RECORDS__ENCODING": encoding}).model_copy(update={"records": None})
    return f"{settings_file(settings, environ, folder)}\n{section_text(proposal, looked_at)}"


def fed_by_folder(path: Path) -> str | None:
    """The table of `[records]` by which a model's folder takes texts or pictures; None for another model."""
    known = folder_of(path)
    if known is None:
        return None
    return "text" if known.tokenizer is not None else "image" if known.image_preprocessing is not None else None


def _of_folder(settings: Settings) -> str:
    """The lines, commented out, with which a folder of a model takes texts or pictures; empty for another model."""
    table = None if settings.records is not None else fed_by_folder(settings.model.path)
    if table is None:
        return ""
    said = f"With these lines records feed the model: {_FED_BY[table]}; the folder says the rest."
    off = "\n".join(f"# {line}" for line in _LINES[table].splitlines())
    return f"\n{comment(said)}\n{off}\n"
