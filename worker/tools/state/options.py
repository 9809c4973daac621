"""The options of the state commands."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from worker.terminal.command_options import AsJson, Config, flag, option

Partitioner = Literal["murmur2_random", "consistent_random"]


@dataclass(frozen=True, kw_only=True)
class _Said:
    as_json: AsJson = False
    config: Config = None


@dataclass(frozen=True, kw_only=True)
class _OneKey:
    key: Annotated[str, typer.Argument(help="The key of the requests.", metavar="KEY")]
    is_base64: bool = flag("--base64", "KEY is written in base64.")


@dataclass(frozen=True, kw_only=True)
class GetOrder(_Said, _OneKey):
    """Show the state of a key."""


@dataclass(frozen=True, kw_only=True)
class ListStatesOrder(_Said):
    """List the keys that have a state, with the request that wrote it."""

    most: int = option(20, "Show at most so many; --json has all.", "N", "-n", min=0)


@dataclass(frozen=True, kw_only=True)
class ExportOrder(_Said):
    """Save all states to a file, as an .npz: workers may go on."""

    file: Annotated[Path, typer.Argument(help="The file to write.", metavar="FILE")]
    force: bool = flag("--force", "Write over a file that is there already.")


@dataclass(frozen=True, kw_only=True)
class ImportOrder(_Said):
    """Write the states of an exported file to the changelog, while no worker of the group runs.

    States of other keys stay. Where the request topic has as many partitions as when the file was written, each key
    stays in its partition; else --partitioner says where its requests go now.
    """

    file: Annotated[Path, typer.Argument(help="A file that `state export` has written.", metavar="FILE")]
    partitioner: Partitioner = option(
        "murmur2_random",
        "That of the clients that publish requests: murmur2_random as Java's, consistent_random as "
        "librdkafka's unless it is set.",
    )


@dataclass(frozen=True, kw_only=True)
class ResetOrder(_Said, _OneKey):
    """Have the state of a key forgotten, by a request that takes its turn behind those that wait already."""

    timeout: float = option(30.0, "Seconds to wait for its answer.", "SECONDS", min=0.1)
