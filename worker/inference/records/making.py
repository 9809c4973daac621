"""Makes a model of records: its preparations and its conclusions, as `[records]` names them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from worker.core.failures import BadConfiguration
from worker.inference.hugging_face import Folder, folder_of
from worker.inference.model import Model
from worker.inference.records.conclusions import fields_of
from worker.inference.records.folder_answers import check_lengths, folder_answers
from worker.inference.records.functions import RECORD, Functions, MadeAnswer, MadeInputs, functions_in
from worker.inference.records.images import images_of
from worker.inference.records.parts import Conclusion, Preparation
from worker.inference.records.record_model import RecordModel, bucket_ends
from worker.inference.records.text import TOKENS, texts_of, token_axis

if TYPE_CHECKING:
    from worker.settings import BatchingSettings, ModelSettings, RecordsSettings

KEEP = "keep"  # an entry of `[records.answer]` that no output makes


def record_model(
    loaded: Model,
    model: ModelSettings,
    batching: BatchingSettings,
    records: RecordsSettings,
    states: Mapping[str, str],
    *,
    leaves_rows: bool = False,
) -> RecordModel:
    """The model of records that is made of a loaded one. Raises `BadConfiguration`.

    `leaves_rows`: a run may leave rows that take long to a later one, if each record is one row.
    """
    leaves_rows = leaves_rows and records.rows is None
    folder = folder_of(model.path)
    functions = Functions(None, None) if records.functions is None else functions_in(records.functions)
    parts = _Parts(loaded, model, records, states, folder, functions, leaves_rows)
    return RecordModel(
        loaded,
        list(parts.preparations()),
        list(parts.conclusions()),
        tuple(states.values()),
        batching.max_batch_tokens,
        [] if functions.answer is None else [RECORD],
    )


class _Parts(NamedTuple):
    """The material of a model of records, and the parts made of it."""

    loaded: Model
    model: ModelSettings
    records: RecordsSettings
    states: Mapping[str, str]
    folder: Folder | None
    functions: Functions
    leaves_rows: bool

    def preparations(self) -> Iterator[Preparation]:
        """The inputs that are made of texts, then pictures, then by a function."""
        loaded, model, records, states, folder, functions, _ = self
        inputs, made = loaded.signature.inputs, {*records.inputs, *states}
        if records.text is not None:
            # The cores have little else to do while a GPU runs the model.
            threads = 0 if loaded.is_accelerated else model.intra_op_num_threads
            texts = texts_of(records.text, inputs, folder, threads, bucket_ends(loaded.signature, TOKENS))
            made |= {*texts.makes}
            yield texts
        if records.image is not None:
            rest = [spec for spec in inputs if spec.name not in made]
            processor = None if folder is None else folder.image_preprocessing
            threads = model.intra_op_num_threads
            images = images_of(rest, records.image, processor, threads, leaves_rows=self.leaves_rows)
            made |= {*images.makes}
            yield images
        if functions.inputs is not None:
            rest = [spec for spec in inputs if spec.name not in made]
            yield MadeInputs(functions.inputs, rest, refuse_non_finite=model.non_finite_input == "reject")

    def conclusions(self) -> Iterator[Conclusion]:
        """The fields that the table names, else the folder. A function's answer has only those of the table beside."""
        loaded, model, records, states, folder, functions, _ = self
        own = [spec for spec in loaded.signature.outputs if spec.name not in states.values()]
        entries = {name: entry for name, entry in records.answer.items() if name != KEEP}
        labels: tuple[str, ...] = ()
        if folder is not None:
            labels = folder.labels or ()
            entries = entries or dict(folder_answers(folder, own)) if functions.answer is None else entries
        if entries or functions.answer is None:
            outputs = loaded.signature.outputs if entries else own
            fields = fields_of(entries, outputs, [spec.name for spec in loaded.signature.inputs], labels)
            if clash := [field.spec.name for field in fields if field.spec.name in states.values()]:
                raise BadConfiguration(f"[records.answer] {clash[0]}: this is a state's name: call the field otherwise")
            if records.text is not None:
                check_lengths(fields, token_axis(loaded.signature.inputs))
            yield from fields
        if functions.answer is not None:
            yield MadeAnswer(functions.answer, refuse_non_finite=model.non_finite_output == "error")
