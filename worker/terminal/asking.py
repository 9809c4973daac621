"""A question to the person at the terminal, before a command does what cannot be undone."""

from __future__ import annotations

import sys


def is_person_there() -> bool:
    """Whether standard input is a terminal: a script, a pipe and a pod have none."""
    return sys.stdin.isatty()


def agreed(question: str) -> bool:
    """Whether the answer is yes. It is asked on standard error; standard output is for results."""
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
