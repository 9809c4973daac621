"""The proposal for the model of some settings and a sample of records, and these settings with it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from worker.core.records import Record
from worker.inference.model_loading import inspect
from worker.settings.for_commands import ScoringSettings
from worker.settings.records_section import RecordsSettings
from worker.tools.records.proposal import Proposal, propose
from worker.tools.records.sample import sample_of

TOKENIZER = "tokenizer.json"


def proposed(settings: ScoringSettings, records: Sequence[Record], folder: Path) -> Proposal:
    """The proposal; paths in it are relative to `folder`. It does not run the model. Raises `BadConfiguration`."""
    model = settings.model
    beside = model.path.parent / TOKENIZER
    return propose(
        inspect(model),
        sample_of(records),
        takes_nan=model.non_finite_input == "allow",
        tokenizer=os.path.relpath(beside, folder) if beside.is_file() and not model.path.is_dir() else None,
        is_folder=model.path.is_dir(),
    )


def with_records(settings: ScoringSettings, proposal: Proposal, folder: Path) -> ScoringSettings:
    """The settings with the proposed section."""
    section = proposal.section
    if "tokenizer" in (text := section.get("text", {})):
        section["text"] = {**text, "tokenizer": folder / text["tokenizer"]}
    return settings.model_copy(update={"records": RecordsSettings.model_validate(section)})
