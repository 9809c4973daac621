"""Has the `.proto` texts of schemas compiled, each by a process of its own (`protoc.py`).

A schema that takes long to compile, as a hostile one may, is asked about again later, so that it holds up no other.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from worker.codecs.records.proto_texts import Sources, compiled, sources
from worker.core.schemas import RegisteredSchema
from worker.registry.verdicts import MOST_SAID, NoCompiler, NotReadable, RegistryAway, StillCompiling

# Where files are written: a container may have no other place for them.
MEMORY = "/dev/shm"  # noqa: S108  # folders in it have random names
MOST_SECONDS = 60.0  # of a process, which a busy machine may let wait
MOST_RUNS = 4  # processes at a time
# Seconds until a text that took all its time is tried again: its publisher could have the worker compile for ever.
REST = 600.0
COSTLY = "takes too long, or too much memory, to compile"
MOST_TEXT = 2**20  # characters of a schema with its imports
# It imports from where we do, and not from the folder that we stand in.
PROGRAM = "import sys; sys.path[:] = {}; from worker.registry.protoc import main; main()"
# Names of imports that are paths below a folder, and cannot be taken for anything else on the command line.
_NAME = re.compile(r"\w[\w+.-]*(?:/\w[\w+.-]*)*", re.ASCII)
_PLACE = re.compile(r"^(\d+)(?=:\d+:\d+: )")  # of an error: the file's number, a line and a column
_WARNING = re.compile(r"WARNING:|W\d{4} |.*:\d+: warning: |$")


# The number and the GUID of a schema.
_Name = tuple[int | None, str | None]


class ProtoCompiler:
    """Owns the processes that compile, until each has been asked for its result. Any thread may ask, one at a time."""

    def __init__(self) -> None:
        self._runs: dict[_Name, _Run] = {}
        self._costly: dict[_Name, float] = {}  # until when each is not tried again

    def compiled(self, schema: RegisteredSchema, patience: float) -> RegisteredSchema:
        """The schema with descriptors in the place of its texts.

        Raises `StillCompiling` after `patience` seconds, and at once if it is asked again. Raises `NotReadable` if the
        compiler refuses it, and `RegistryAway`.
        """
        name, now = (schema.id, schema.guid), time.monotonic()
        if now < self._costly.get(name, now):
            raise NotReadable(COSTLY)
        run = self._runs.get(name)
        if run is not None:
            patience = 0.0
        elif (given := _sources(schema)) is not None:
            run = self._started(name, given)
        else:
            return schema
        if not run.is_over(patience):
            raise StillCompiling("the .proto text of a schema is being compiled")
        del self._runs[name]
        if run.is_costly:
            self._costly = {known: until for known, until in self._costly.items() if now < until}
            self._costly[name] = now + REST
        try:
            return compiled(schema, run.descriptors())
        finally:
            run.end()

    def close(self) -> None:
        """End what runs."""
        for run in self._runs.values():
            run.end()
        self._runs.clear()

    def _started(self, name: _Name, given: Sources) -> _Run:
        if find_spec("grpc_tools") is None:
            raise NoCompiler(
                "the registry has the .proto text of a schema, and no compiler is installed: pip install "
                "'inference-worker[registry]', which has grpcio-tools"
            )
        if len(self._runs) >= MOST_RUNS:
            raise StillCompiling("other schemas are being compiled")
        try:
            run = self._runs[name] = _Run(given)
        except OSError as error:
            raise RegistryAway(f"protoc does not start: {error}") from error
        return run


class _Run:
    """One process. Owns its folder."""

    def __init__(self, given: Sources) -> None:
        """Raises `OSError` if it cannot be started."""
        self._folder = TemporaryDirectory(prefix="protoc-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None)
        self._until = time.monotonic() + MOST_SECONDS
        self._names = list(given.texts)
        try:
            arguments = list(_written(given, Path(self._folder.name)))
            with self._path("said").open("wb") as said:
                self._process = subprocess.Popen(  # noqa: S603  # our own program
                    [sys.executable, "-c", PROGRAM.format(list(map(str, sys.path))), *arguments],
                    cwd=self._folder.name,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=said,
                    process_group=0,  # Ctrl-C does not reach it
                )
        except OSError:
            self._folder.cleanup()
            raise

    def is_over(self, patience: float) -> bool:
        """True if the process has ended, or had all its time; waits so many seconds for that."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        return self._process.returncode is not None or time.monotonic() >= self._until

    @property
    def is_costly(self) -> bool:
        """True if the process was ended by its limits, or has had all its time."""
        return self._process.returncode is None or self._process.returncode < 0

    def descriptors(self) -> bytes:
        """The set of descriptors. Raises `NotReadable`."""
        if self.is_costly:
            raise NotReadable(COSTLY)
        if self._process.returncode:
            raise NotReadable(f"cannot be compiled: {self._why()}")
        return self._path("made").read_bytes()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()

    def _why(self) -> str:
        for line in self._path("said").read_text(errors="replace").splitlines():
            if not _WARNING.match(line):
                return _PLACE.sub(lambda found: self._names[int(found[0])], line)[:MOST_SAID]
        return "no reason is given"

    def _path(self, name: str) -> Path:
        return Path(self._folder.name, name)


def _sources(schema: RegisteredSchema) -> Sources | None:
    """The files to compile. Raises `NotReadable` if they can be none."""
    try:
        given = sources(schema)
    except ValueError as wrong:
        raise NotReadable(str(wrong)) from wrong
    if given is None:
        return None
    if sum(map(len, given.texts.values())) + len(given.described) > MOST_TEXT:
        raise NotReadable(f"is longer than {MOST_TEXT:,} characters with what it imports")
    if not all(map(_NAME.fullmatch, given.texts)):
        raise NotReadable("refers to a schema by a name that is no path of a file")
    return given


def _written(given: Sources, folder: Path) -> Iterator[str]:
    """Write the files, each under a number of its own. The arguments of `protoc` say what they are called."""
    for at, (name, text) in enumerate(given.texts.items()):
        (folder / str(at)).write_text(text, encoding="utf-8", errors="replace")
        yield f"-I{name}={at}"
    (folder / "described").write_bytes(given.described)
    yield "--descriptor_set_in=described"
    yield from ("--descriptor_set_out=made", "--include_imports")
    yield from given.texts
