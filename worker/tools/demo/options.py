"""What can be asked of `demo` on the command line. Imported with the command line: nothing heavy in here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer


@dataclass(frozen=True, kw_only=True)
class DemoOrder:
    """Classify handwritten digits, batched and one by one, on a mock broker inside this process."""

    open_pages: Annotated[bool, typer.Option("--open", help="Open both workers' live pages in the browser.")] = False
    stay: Annotated[bool, typer.Option("--stay", help="Keep both workers and their live pages up until Ctrl-C.")] = (
        False
    )
