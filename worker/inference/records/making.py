"""Makes a model of records: its preparations and its conclusions, as `[records]` names them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from worker.core.failures import BadConfiguration
from worker.inference.model import Model
from worker.inference.records.conclusions import fields_of
from worker.inference.records.functions import RECORD, Functions, MadeAnswer, MadeInputs, functions_in
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
    functions = _functions(records)
    if functions.inputs is not None:
        others = {*records.inputs, *states, *[name for each in preparations for name in each.makes]}
        makes = [spec for spec in loaded.signature.inputs if spec.name not in others]
        strict = model.non_finite_input == "reject"
        preparations.append(MadeInputs(functions.inputs, makes, refuse_non_finite=strict))
    conclusions = list(_conclusions(loaded, model, records, states, functions))
    takes = () if functions.answer is None else (RECORD,)
    return RecordModel(loaded, preparations, conclusions, tuple(states.values()), batching.max_batch_tokens, takes)


def _conclusions(
    loaded: Model, model: ModelSettings, records: RecordsSettings, states: Mapping[str, str], functions: Functions
) -> Iterator[Conclusion]:
    """The fields of the answer: those that a function makes take the place of all outputs, and stand behind others."""
    answer = {name: entry for name, entry in records.answer.items() if name != KEEP}
    if answer or functions.answer is None:
        outputs = [spec for spec in loaded.signature.outputs if spec.name not in states.values()]
        yield from fields_of(answer, outputs, [spec.name for spec in loaded.signature.inputs])
    if functions.answer is not None:
        yield MadeAnswer(functions.answer, refuse_non_finite=model.non_finite_output == "error")


def _functions(records: RecordsSettings) -> Functions:
    if records.functions is None:
        return Functions(None, None)
    if records.rows is not None:
        raise BadConfiguration("[records] functions: a function takes a record as one row; leave `rows` out, or it")
    return functions_in(records.functions)


def _preparations(loaded: Model, model: ModelSettings, records: RecordsSettings) -> Iterator[Preparation]:
    yield from ()
