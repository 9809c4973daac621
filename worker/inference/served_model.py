"""Loads what is served, and its facts: a model of tensors, or with `[records]` a model of records made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from worker.core.failures import BadConfiguration
from worker.inference.facts import ModelFacts, Runnable
from worker.inference.model_loading import load_as_set
from worker.inference.row_independence import facts_of

if TYPE_CHECKING:
    from worker.settings import BatchingSettings, ModelSettings, RecordsSettings


def load_served(
    model: ModelSettings, batching: BatchingSettings, records: RecordsSettings | None, states: Mapping[str, str]
) -> tuple[Runnable, ModelFacts]:
    """Load the model of these settings. `states`: its inputs that are state, each with the output of its next value.

    The facts have the signature that is served. Raises `BadConfiguration`.
    """
    loaded = load_as_set(model, batching)
    facts = facts_of(loaded, batching.max_batch_size)
    if records is None:
        return loaded, facts
    from worker.inference.records.making import record_model  # noqa: PLC0415  # most workers serve tensors

    try:
        served = record_model(loaded, model, batching, records, states, leaves_rows=True)
    except BadConfiguration as refusal:
        raise BadConfiguration(f"{model.path}: {refusal}") from refusal
    return served, replace(facts, signature=served.signature)
