"""`inference-worker init`: writes a first settings file for a model, and names the next commands.

It reads the model's file without running it. It asks the cluster only for a sample of records, if a topic is named:
`check`, the next command, does the rest. It changes only the settings file.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from worker.core.failures import BadConfiguration
from worker.core.records import Record
from worker.core.tensors.signature import Signature
from worker.inference.declared_signature import Declared
from worker.settings.for_commands import load_client, load_scoring
from worker.terminal.command_line import with_options
from worker.terminal.terminal import console, count, printable, say
from worker.tools.init.options import InitOrder
from worker.tools.records.first_settings import fed_by_folder, first_file, first_settings
from worker.tools.records.proposal import Proposal
from worker.tools.records.proposing import proposed, sample_of_topic
from worker.tools.records.sample import of_file

SAMPLE = 100  # records
_RECORDS = "WORKER_RECORDS__"


def init(order: InitOrder) -> int:
    """Write the file. Raises `BadConfiguration` for a model that cannot be served, and if the file exists already."""
    if order.config.exists() and not order.force:
        raise BadConfiguration(f"{order.config} is there already; --force writes over it, --config names another")
    environ = order.over(os.environ)
    if order.topic is not None and order.requests is None:
        environ = with_options(environ, WORKER_KAFKA__REQUEST_TOPICS=order.topic)
    given = {name: value for name, value in environ.items() if value}
    if "WORKER_MODEL__PATH" not in given:
        raise BadConfiguration("which model? `inference-worker init --model model.onnx` names its file")
    settings, seen = first_settings(given)
    records, proposal = _proposed(order, settings)
    text = first_file(settings, order.config.parent, proposal, len(records))
    try:
        with order.config.open("w" if order.force else "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise BadConfiguration(f"--config {order.config}: cannot be written: {error.strerror}") from None
    screen = console()
    say(screen, printable(f"{order.config} is written"))
    for line in (*_rows(seen), *_told(order, settings, seen.signature, proposal, len(records))):
        say(screen, f"  {printable(line)}")
    say(screen, "Next:")
    for words in _next(order, proposal):
        say(screen, "  " + printable(shlex.join(["inference-worker", *words])))
    return 0


def _next(order: InitOrder, proposal: Proposal | None) -> Iterator[Sequence[str]]:
    """Yields the next commands. `check` tries the newest records of a topic, but none of a file."""
    config = ("--config", str(order.config))
    if order.records is not None and proposal is not None and not proposal.open:
        yield "records", "try", str(order.records), *config
    yield "check", *config, "--create-topics"
    yield "run", *config


def _proposed(order: InitOrder, environ: Mapping[str, str]) -> tuple[Sequence[Record], Proposal | None]:
    """A sample of records and the proposal for it; none if the order names no sample."""
    were_framed = False
    if order.records is not None:
        records = of_file(order.records, SAMPLE)
    elif order.topic is not None:
        records, were_framed = sample_of_topic(load_client(None, environ), order.topic, SAMPLE)
    else:
        return (), None
    return records, proposed(load_scoring(None, environ), records, order.config.parent, were_framed=were_framed)


def _told(
    order: InitOrder, settings: Mapping[str, str], signature: Signature, proposal: Proposal | None, looked_at: int
) -> Iterator[str]:
    """Yields the lines about what the topics hold, and about requests or records of different lengths."""
    if proposal is not None:
        yield f"{count(looked_at, 'record')} looked at: confirm each line of [records] in it"
        if proposal.open:
            yield f"it is not clear which field feeds {', '.join(proposal.open)}: complete these lines"
        takes_texts = "text" in proposal.section
    else:
        if not any(name.startswith(_RECORDS) for name in settings):
            yield "it expects requests with tensors; if the topic has records, say --topic NAME, or --records FILE"
            if (table := fed_by_folder(Path(settings["WORKER_MODEL__PATH"]))) is not None:
                yield f"or take the comment marks from [records.{table}] at the end of {order.config}"
        takes_texts = f"{_RECORDS}TEXT" in settings
    if not takes_texts and any(None in spec.dims for spec in signature.inputs):
        what = "requests" if proposal is None else "records"
        yield f"{what} of different lengths share no batch unless buckets pad them: see `profile --lengths`"


def _rows(seen: Declared) -> Iterator[str]:
    """Yields the lines about the model."""
    signature, rows = seen.signature, seen.fixed_rows
    yield f"{signature.name} takes {signature.takes} and gives {', '.join(map(str, signature.outputs))}"
    if rows is not None:
        yield f"exactly {count(rows, 'row')} at once; exported for any number it would serve more"
