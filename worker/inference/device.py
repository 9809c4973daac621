"""Chooses the device that the model runs on, and opens the session there.

`auto` takes CUDA where it works, and else the CPU. A device that was asked for by name is used or refused. ONNX Runtime
itself falls back in silence: its fallback is off here, because one core cannot serve a GPU's load. If a device's
library cannot be loaded, ONNX Runtime says why on standard error alone.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout, suppress
from typing import Any

import onnxruntime as ort

from worker.core.failures import BadConfiguration
from worker.inference.block_session import BlockSession, blocks_of
from worker.inference.facts import Device
from worker.inference.model_file import LoadableModel
from worker.inference.onnxruntime_errors import is_out_of_memory, load_failure, readable
from worker.inference.session import CPU, CUDA, RUN_ERRORS, TENSORRT, Opened, Session
from worker.inference.zip_maps import without_zip_maps

Options = Mapping[str, str]  # `provider.option`: an option of ONNX Runtime's provider, passed on unchanged

# CUDA graphs: ONNX Runtime captures one run, and replays its kernels and shapes for every later input.
_FOR_ONE_SHAPE = {"enable_cuda_graph", "trt_cuda_graph_enable"}

# The folder where a model given as bytes finds weights in other files: none. By default it is the current directory,
# and a file planted there became part of a model that names it.
_FOLDER = "session.model_external_initializers_file_folder_path"

_FORMAT = "session.load_model_format"

# From 1.24 on ONNX Runtime remembers which provider has which nodes; an older one ignores this entry.
_PLACEMENT = "session.record_ep_graph_assignment_info"

# The threads of an inference stop spinning when it ends. At ten inferences a second two of them took 0.15 to 0.5 of a
# core, and 0.02 with this entry. Back to back on free cores a model takes 0 to 2.5 % longer (two threads, 2026-11).
_AT_REST = "session.force_spinning_stop"

# ONNX Runtime's levels of logging.
ERROR, FATAL = 3, 4


class Unusable(Exception):
    """A device that was tried cannot be used. The message names the cause."""


def open_named(
    loadable: LoadableModel, wanted: str, providers: Sequence[str], threads: int, options: Options
) -> Opened:
    """Open a session on the device that the operator named (`cpu`, `cuda`, `cuda:1`, or a list of providers).

    Raises `BadConfiguration` with cause and cure when that device cannot be used, or the model cannot be loaded.
    """
    if wanted == "cpu" and not providers:
        return open_cpu(loadable, threads, "WORKER_MODEL__DEVICE is cpu")
    try:
        if providers:
            return _open_providers(loadable, providers, threads, options)
        return open_cuda(loadable, wanted, threads, options)
    except Unusable as cause:
        setting = f"PROVIDERS is {','.join(providers)}" if providers else f"DEVICE is {wanted}"
        raise BadConfiguration(
            f"WORKER_MODEL__{setting}, but {str(cause).rstrip('.')}. Install what is missing (`pip install "
            "'onnxruntime-gpu[cuda,cudnn]'`, a driver for that CUDA, TensorRT by yourself), give the container its "
            "GPUs, or choose another device (WORKER_MODEL__DEVICE=cpu)"
        ) from cause


def open_cpu(loadable: LoadableModel, threads: int, reason: str) -> Opened:
    """Open a session on the CPU. Raises `BadConfiguration` when ONNX Runtime cannot load the model."""
    try:
        return Opened(_session(loadable, [CPU], threads), Device("cpu", reason))
    except RUN_ERRORS as error:
        raise BadConfiguration(
            f"ONNX Runtime {ort.__version__} cannot load the model: {load_failure(error)}"
        ) from error


def open_cuda(loadable: LoadableModel, wanted: str, threads: int, options: Options) -> Opened:
    """Open a session on a GPU: `auto`, `cuda` or `cuda:n`. Raises `Unusable`, or `BadConfiguration` for the model."""
    number = int(wanted.partition(":")[2] or 0)
    if CUDA not in ort.get_available_providers():
        raise Unusable("this ONNX Runtime is built without CUDA (onnxruntime-gpu has it)")
    if not _has_driver():
        raise Unusable("this machine shows no NVIDIA driver (in a container: started without its GPUs)")
    cuda = (CUDA, _options_of(CUDA, options) | {"device_id": str(number)})
    session = _session_or_cause(loadable, [cuda, CPU], threads)
    reason = "CUDA works" if wanted == "auto" else f"WORKER_MODEL__DEVICE is {wanted}"
    return Opened(session, Device(f"cuda:{number}", reason))


def check_options(options: Options, wanted: str, providers: Sequence[str]) -> None:
    """Raises `BadConfiguration` for options without effect on this device, and for options that break batches."""
    chosen = providers or ((CPU,) if wanted == "cpu" else (CUDA, CPU))
    for name in options:
        provider, _, option = name.partition(".")
        if provider not in chosen:
            raise BadConfiguration(
                f"WORKER_MODEL__PROVIDER_OPTIONS: {name} has no effect, for the model runs on {', '.join(chosen)}: "
                "name the provider in WORKER_MODEL__PROVIDERS, or leave the option out"
            )
        if option in _FOR_ONE_SHAPE and options[name] not in ("0", "false", "False"):
            raise BadConfiguration(
                f"WORKER_MODEL__PROVIDER_OPTIONS: {name} replays what was captured for one number of rows, and batches "
                "differ in theirs: leave it out"
            )


def _options_of(provider: str, options: Options) -> dict[str, str]:
    start = f"{provider}."
    return {name.removeprefix(start): value for name, value in options.items() if name.startswith(start)}


def _open_providers(loadable: LoadableModel, providers: Sequence[str], threads: int, options: Options) -> Opened:
    there = ort.get_available_providers()
    if unknown := [name for name in providers if name not in there]:
        raise BadConfiguration(
            f"WORKER_MODEL__PROVIDERS: this ONNX Runtime has no {', '.join(unknown)}; it has {', '.join(there)}"
        )
    session = _session_or_cause(loadable, [(name, _options_of(name, options)) for name in providers], threads)
    return Opened(session, Device(",".join(providers), "WORKER_MODEL__PROVIDERS is set"))


def _session_or_cause(loadable: LoadableModel, providers: list[Any], threads: int) -> Session:
    """Open a session that uses every provider asked for.

    Raises `Unusable` with the runtime's own complaint, or `BadConfiguration` for a wrong option or for the model.
    """
    names = [provider if isinstance(provider, str) else provider[0] for provider in providers]
    ort.set_default_logger_severity(ERROR)
    try:
        if not {CUDA, TENSORRT}.isdisjoint(names) and hasattr(ort, "preload_dlls"):
            with redirect_stdout(sys.stderr):  # it prints complaints on standard output
                ort.preload_dlls()  # CUDA from pip's packages, which lie where the loader does not look
        session = _session(loadable, providers, threads)
    except RUN_ERRORS as error:
        said = readable(error)
        if "provider option" in said:
            raise BadConfiguration(f"WORKER_MODEL__PROVIDER_OPTIONS: {said}") from error
        if is_out_of_memory(error):
            raise BadConfiguration(load_failure(error)) from error
        open_cpu(loadable, threads, "")  # refuses a model that cannot be loaded anywhere
        raise Unusable(said) from error
    finally:
        ort.set_default_logger_severity(FATAL)  # else it reports each failed run on CUDA, past our log
    if absent := [name for name in names if name not in session.get_providers()]:
        raise Unusable(f"{', '.join(absent)} cannot be used; ONNX Runtime says why on standard error, above")
    return session


def _session(loadable: LoadableModel, providers: list[Any], threads: int) -> Session:
    loadable = without_zip_maps(loadable)
    blocks = blocks_of(loadable)
    if blocks is not None:
        changed = loadable._replace(model=blocks.model)
        with suppress(*RUN_ERRORS):  # an odd model: it says by itself what is wrong
            return BlockSession(_session_as_it_is(changed, providers, threads), blocks)
    unchanged: Session = _session_as_it_is(loadable, providers, threads)
    return unchanged


def _session_as_it_is(loadable: LoadableModel, providers: list[Any], threads: int) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    # Failures come back as exceptions; the runtime's own lines on standard error would repeat them, payload included.
    options.log_severity_level = FATAL
    options.add_session_config_entry(_PLACEMENT, "1")
    options.add_session_config_entry(_AT_REST, "1")
    options.add_session_config_entry(_FORMAT, "ORT" if loadable.is_ort else "ONNX")
    if isinstance(loadable.model, bytes):
        options.add_session_config_entry(_FOLDER, os.devnull)
    for library in loadable.custom_ops:
        options.register_custom_ops_library(library)
    session = ort.InferenceSession(loadable.model, options, providers=providers, enable_fallback=0)
    # Else it keeps the model's bytes for a new session, which is never made: a model of 1.4 GB took 2.9 (2026-11-26).
    session._model_bytes = None  # noqa: SLF001  # nothing public lets go of it
    session.disable_fallback()
    return session


def _has_driver() -> bool:
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True
