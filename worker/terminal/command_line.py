"""A command's options that override settings: an option wins over the environment, and that over the file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from worker.core.failures import BadConfiguration
from worker.core.records import ClosedBy
from worker.settings.for_commands import ClientKafkaSettings, load_scoring

if TYPE_CHECKING:
    from worker.core.records import Array
    from worker.core.tensors.signature import Signature
    from worker.core.tensors.specs import TensorSpec
    from worker.settings import StateSettings
    from worker.state import StateLayout

# The settings that close a batch before it has MAX_BATCH_SIZE rows.
CLOSING = {
    ClosedBy.BYTES: "WORKER_BATCHING__MAX_BATCH_BYTES",
    ClosedBy.TOKENS: "WORKER_BATCHING__MAX_BATCH_TOKENS",
}


def with_options(environ: Mapping[str, str], **options: object) -> dict[str, str]:
    """The environment with these variables instead of its own. An option that was not given is None."""
    return {**environ, **{name: str(value) for name, value in options.items() if value is not None}}


def check_idle(why: str, **options: object) -> None:
    """Raises `BadConfiguration` for options that were given (not None) and do nothing; `why` says what they lack."""
    idle = [
        f"{'--' if len(name) > 1 else '-'}{name.replace('_', '-')}" for name in options if options[name] is not None
    ]
    if idle:
        raise BadConfiguration(f"{' and '.join(idle)} {'does' if len(idle) == 1 else 'do'} nothing {why}")


def check_readers(
    option: str, topic: str, kafka: ClientKafkaSettings, *written: Literal["response_topic", "dead_letter_topic"]
) -> None:
    """Raises `BadConfiguration` for a topic of answers or dead letters, whose readers would misread requests."""
    for setting in written:
        if topic == getattr(kafka, setting):
            raise BadConfiguration(
                f"{option} {topic}: is WORKER_KAFKA__{setting.upper()}, and its readers would misread requests; "
                "name a topic that workers read"
            )


def signature_and_example(
    config: Path | None, environ: Mapping[str, str]
) -> tuple[Signature, Mapping[str, Array] | None]:
    """The signature of the model's requests and answers, and the operator's example of rows, if there is one.

    The model is not run. Raises `BadConfiguration`.
    """
    settings = load_scoring(config, environ)
    from worker.inference.model_loading import example_of, inspect  # noqa: PLC0415 - ONNX Runtime takes its time; few calls need it

    whole = inspect(settings.model).signature
    return split_signature(whole, settings.state)[1], example_of(settings.model, whole)


def split_signature(signature: Signature, state: StateSettings) -> tuple[StateLayout | None, Signature]:
    """Split a signature into the state that the model keeps by key, if any, and the form of requests and answers.

    Raises `BadConfiguration`.
    """
    if not state.tensors:
        return None, signature
    from worker.state import layout_of  # noqa: PLC0415 - most models have no state

    return layout_of(signature, state.tensors, state.initial, with_answer=state.answer)


def open_axes(specs: Iterable[TensorSpec], shapes: Iterable[Sequence[int]]) -> dict[str, int]:
    """The lengths of the axes that a model's file leaves open, by input and axis: `input_ids:1`.

    A run's figures depend on these lengths. `shapes`: the inputs' shapes, without the batch's axis.
    """
    return {
        f"{spec.name}:{axis}": length
        for spec, shape in zip(specs, shapes, strict=True)
        for axis, (dim, length) in enumerate(zip(spec.dims, shape, strict=True), 1)
        if dim is None
    }
