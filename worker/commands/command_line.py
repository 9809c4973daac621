"""What the options of a command do to the settings: they go before the environment, as that does before the file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from worker.core.failures import BadConfiguration
from worker.core.signature import Signature
from worker.settings import load_scoring


def with_options(environ: Mapping[str, str], **options: object) -> dict[str, str]:
    """The environment, with these variables in the place of its own; None for an option that was not given."""
    return {**environ, **{name: str(value) for name, value in options.items() if value is not None}}


def signature_of_model(config: Path | None, environ: Mapping[str, str]) -> Signature:
    """What the model of these settings takes and gives, without running it. Raises `BadConfiguration`."""
    settings = load_scoring(config, environ)
    from worker.inference import inspect  # noqa: PLC0415 - ONNX Runtime takes its time, and few calls need it

    return inspect(settings.model).signature


def signature_if_any(config: Path | None, environ: Mapping[str, str], *, is_asked_for: bool) -> Signature | None:
    """The same, for what can do without a model: None, and `BadConfiguration` only for a model that was asked for."""
    try:
        return signature_of_model(config, environ)
    except BadConfiguration:
        if is_asked_for:
            raise
        return None
