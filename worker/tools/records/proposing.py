"""The proposal for the model of some settings and a sample of records, and these settings with it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from worker.core.failures import BadConfiguration
from worker.core.records import Record
from worker.inference.hugging_face import folder_of
from worker.inference.model_loading import inspect
from worker.settings.for_commands import ClientSettings, ScoringSettings
from worker.settings.records_section import RecordsSettings
from worker.terminal.command_line import split_signature
from worker.tools.records.proposal import Proposal, propose
from worker.tools.records.sample import are_framed, sample_of

TOKENIZER = "tokenizer.json"


def sample_of_topic(settings: ClientSettings, topic: str, most: int) -> tuple[list[Record], bool]:
    """The newest records of a topic, and whether they were framed: such ones come as JSON objects.

    Raises `BadConfiguration` if the cluster does not answer, or if a registry is needed and does not.
    """
    from worker.kafka.reader import newest  # noqa: PLC0415 - few calls ask a cluster

    records = newest(settings.kafka, topic, most)
    if not records or not are_framed(records):
        return records, False
    if settings.registry is None:
        raise BadConfiguration(
            "the records name schemas in a registry: WORKER_REGISTRY__URL, or url in [registry], says where it is"
        )
    from worker.registry.framed_records import unframed  # noqa: PLC0415 - its client is an extra

    return unframed(records, settings.registry), True


def proposed(
    settings: ScoringSettings, records: Sequence[Record], folder: Path, *, were_framed: bool = False
) -> Proposal:
    """The proposal; paths in it are relative to `folder`. It does not run the model. Raises `BadConfiguration`."""
    model = settings.model
    known, beside = folder_of(model.path), model.path.parent / TOKENIZER
    needs_tokenizer = (known is None or known.tokenizer is None) and beside.is_file()
    return propose(
        split_signature(inspect(model).signature, settings.state)[1],
        sample_of(records, were_framed=were_framed),
        takes_nan=model.non_finite_input == "allow",
        tokenizer=os.path.relpath(beside, folder) if needs_tokenizer else None,
        has_image_steps=known is not None and known.image_preprocessing is not None,
        has_answer=known is not None and (known.pooling is not None or known.labels is not None),
    )


def with_records(settings: ScoringSettings, proposal: Proposal, folder: Path) -> ScoringSettings:
    """The settings with the proposed section."""
    section = proposal.section
    if "tokenizer" in (text := section.get("text", {})):
        section["text"] = {**text, "tokenizer": folder / text["tokenizer"]}
    return settings.model_copy(update={"records": RecordsSettings.model_validate(section)})
