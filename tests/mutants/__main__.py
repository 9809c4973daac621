"""The command: plants the bugs in as many processes as there are processors, and prints a line for each."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Callable, Sequence

from tests.mutants.bugs import BUGS, Found, all_catches, first_catch

LONGEST = 300.0  # seconds: each takes a few


def run(names: Sequence[str], search: Callable[[str], Found]) -> int:
    """Plant bugs in parallel, print each in order, and return the exit code."""
    survivors = []
    # Spawned, not forked: a fork of a process with threads may hang, and Python 3.12 warns of it.
    spawned = multiprocessing.get_context("spawn")
    with spawned.Pool(min(len(names), multiprocessing.cpu_count())) as pool:
        running = {name: pool.apply_async(search, [name]) for name in names}
        for name, result in running.items():
            found = result.get(LONGEST)
            write(name, found)
            survivors += [] if found else [name]
    sys.stdout.write(f"\n{len(names) - len(survivors)} of {len(names)} bugs are caught\n")
    return 1 if survivors else 0


def write(name: str, found: Found) -> None:
    """Print one line for each test that caught the bug, with its message."""
    rows = [f"{'caught':9}{name:84}{catch.test}\n{'':13}{catch.said[:120]}\n" for catch in found]
    sys.stdout.write("".join(rows) or f"{'SURVIVES':9}{name}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="Plant bugs, and see who notices.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only bugs whose name contains it")
    parser.add_argument("--all", action="store_true", help="show every test that notices, not the first alone")
    asked = parser.parse_args(arguments)
    names = [name for name in BUGS if not asked.names or any(part in name for part in asked.names)]
    if not names:
        parser.error(f"no bug is called so; there are {len(BUGS)}: {'; '.join(BUGS)}")
    return run(names, all_catches if asked.all else first_catch)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
