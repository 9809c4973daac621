"""`inference-worker records infer`: proposes a mapping from a sample, shows what it gives, and writes the settings.

It joins no group and commits nothing. It changes only the settings file.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from worker.core.failures import BadConfiguration, Incomplete
from worker.core.records import Record
from worker.inference.model_loading import load_as_set
from worker.scorer import Scorer
from worker.settings.for_commands import ScoringSettings, load_client, load_scoring, unset
from worker.terminal.command_line import check_idle, with_options
from worker.terminal.terminal import aside, console, count, printable, say
from worker.tools.records.first_settings import first_file, first_settings
from worker.tools.records.options import InferOrder
from worker.tools.records.proposal import Proposal
from worker.tools.records.proposing import proposed, sample_of_topic, with_records
from worker.tools.records.sample import of_file
from worker.tools.records.section_text import section_text
from worker.tools.records.shown import show_trial

SHOWN = 10  # records beside their tensors and answers


def infer(order: InferOrder) -> int:
    """Propose a mapping. Returns 0 if no record that is shown is refused. Raises `Incomplete` if one is."""
    if order.file is not None:
        check_idle("with --file", topic=order.topic, bootstrap_servers=order.bootstrap_servers)
    if order.output is not None and order.output.exists() and not order.force:
        raise BadConfiguration(f"{order.output} is there already; --force writes over it, --output names another")
    if order.output is not None and not order.output.parent.is_dir():
        raise BadConfiguration(f"--output {order.output}: there is no folder {order.output.parent}")
    environ = with_options(
        os.environ, WORKER_MODEL__PATH=order.model, WORKER_KAFKA__BOOTSTRAP_SERVERS=order.bootstrap_servers
    )
    settings, folder = load_scoring(order.config, environ), (order.output or order.config or Path()).parent
    at_hand = _at_hand(order, folder)
    records, were_framed = _sample(order, environ)
    proposal = proposed(settings, records, folder, were_framed=were_framed)
    if at_hand is not None:
        text = at_hand + section_text(proposal, len(records))
    else:
        topic = {} if order.topic is None else {"WORKER_KAFKA__REQUEST_TOPICS": order.topic}
        text = first_file(first_settings({**environ, **topic}).environ, folder, proposal, len(records))
    screen = aside() if order.output is None else console()
    why = _not_answered(screen, settings, proposal, records[-SHOWN:], folder)
    if order.output is None:
        sys.stdout.write(text)
    else:
        try:
            order.output.write_text(text, encoding="utf-8")
        except OSError as error:
            raise BadConfiguration(f"--output {order.output}: cannot be written: {error.strerror}") from error
        say(screen, printable(f"{order.output} is written: look at each line of [records]"))
    if why is not None:
        raise Incomplete(why)
    return 0


def _at_hand(order: InferOrder, folder: Path) -> str | None:
    """The settings at hand, before the section; empty where only that is printed; None without a file of settings."""
    if order.config is None:
        return None
    text = order.config.read_text(encoding="utf-8")
    if "records" in tomllib.loads(text):
        raise BadConfiguration(
            f"{order.config} has [records] already: `records try` tries it; for a new proposal take it out"
        )
    if order.output is None:
        return ""
    if folder.resolve() != order.config.parent.resolve():
        raise BadConfiguration(f"--output {order.output}: must lie next to {order.config}, whose paths are relative")
    return f"{text}\n"


def _sample(order: InferOrder, environ: Mapping[str, str]) -> tuple[Sequence[Record], bool]:
    """The records to look at, and whether they were framed."""
    if order.file is not None:
        return of_file(order.file, order.sample), False
    settings = load_client(order.config, environ)
    topics = [order.topic] if order.topic is not None else settings.kafka.request_topics or ()
    if len(topics) != 1:
        raise unset("which topic has the records? --topic names it, or --file a file of some", order.config)
    return sample_of_topic(settings, topics[0], order.sample)


def _not_answered(
    screen: Console, settings: ScoringSettings, proposal: Proposal, records: Sequence[Record], folder: Path
) -> str | None:
    """Show these records with their answers. Returns why some are refused; None if none is."""
    if proposal.open:
        return f"it is not clear which field feeds {', '.join(proposal.open)}: complete these lines of [records]"
    try:
        scorer = Scorer(load_as_set(settings.model, settings.batching), with_records(settings, proposal, folder))
        refused = show_trial(screen, scorer, records)
    except BadConfiguration as refusal:
        return f"the proposal could not be tried: {refusal}"
    return f"{refused} of {count(len(records), 'record')} got no answer" if refused else None
