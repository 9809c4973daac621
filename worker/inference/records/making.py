"""Makes a model of records: its preparations and its conclusions, as `[records]` names them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from worker.inference.model import Model
from worker.inference.records.conclusions import fields_of
from worker.inference.records.parts import Conclusion, Preparation
from worker.inference.records.record_model import RecordModel

if TYPE_CHECKING:
    from worker.settings import BatchingSettings, ModelSettings, RecordsSettings

KEEP = "keep"  # an entry of `[records.answer]` that no output makes


def record_model(
    loaded: Model,
    model: ModelSettings,
    batching: BatchingSettings,
    records: RecordsSettings,
    states: Mapping[str, str],
) -> RecordModel:
    """The model of records that is made of a loaded one. Raises `BadConfiguration`."""
    preparations = list(_preparations(loaded, model, records))
    answer = {name: entry for name, entry in records.answer.items() if name != KEEP}
    outputs = [spec for spec in loaded.signature.outputs if spec.name not in states.values()]
    conclusions: list[Conclusion] = [*fields_of(answer, outputs, [spec.name for spec in loaded.signature.inputs])]
    return RecordModel(loaded, preparations, conclusions, tuple(states.values()), batching.max_batch_tokens)


def _preparations(loaded: Model, model: ModelSettings, records: RecordsSettings) -> Iterator[Preparation]:
    yield from ()
