"""What was meant by a word that a command does not take: an option before it, or an argument without one. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from typer.core import TyperArgument, TyperCommand

# The option for a file, by the end of its name; any other word may be a topic.
_FILES = {".toml": "--config", ".onnx": "--model"}
_OTHERWISE = "--topic"


class KnownOptions(TyperCommand):
    """One command's options and arguments."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As typer does, and with what to type instead."""
        for option in [f"--{param.name}" for param in self.params if isinstance(param, TyperArgument)]:
            if (meant := _without(option, args)) != args:
                ctx.fail(f"No such option '{option}'. Did you mean '{ctx.command_path} {shlex.join(meant)}'?")
        ctx.allow_extra_args = True  # or typer would refuse them before we can
        extra = super().parse_args(ctx, args)
        if extra and not ctx.resilient_parsing:
            ctx.fail(f"Unexpected '{' '.join(extra)}'.{self._guess(ctx, extra[0])}")
        return extra

    def _guess(self, ctx: Any, word: str) -> str:
        option = _FILES.get(PurePath(word).suffix, _OTHERWISE)
        is_ours = any(option in param.opts for param in self.params)
        return f" Did you mean '{ctx.command_path} {option} {shlex.quote(word)}'?" if is_ours else ""


def _without(option: str, args: Sequence[str]) -> list[str]:
    return [word.removeprefix(f"{option}=") for word in args if word != option]
