"""A picture of what was measured: PNG or SVG, by the name of the file.

The only place that imports matplotlib, an optional extra, and only when a picture is wanted. It draws without a screen
and without a backend to choose. Knows nothing of what is drawn: the command that measured draws.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from worker.core.failures import BadConfiguration

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which people who see no red or no green can tell apart, in the order in which to use them.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")

_FORMATS = {".png": "png", ".svg": "svg"}
_SIZE = (8.0, 4.5)  # inches: 1200 × 675 pixels
_DPI = 150


def check(path: Path) -> None:
    """Raises `BadConfiguration` when `save` could not write there: ask before a long measurement, not after."""
    if path.suffix.lower() not in _FORMATS:
        raise BadConfiguration(f"--plot: {path} should end in .png or .svg, which says what is written")
    if not path.parent.is_dir():
        raise BadConfiguration(f"--plot: there is no folder {path.parent}")
    try:
        import matplotlib  # noqa: F401, PLC0415 - an optional extra
    except ImportError:
        raise BadConfiguration("--plot needs matplotlib: pip install '.[plot]'") from None


def save(path: Path, draw: Callable[[Figure], None]) -> None:
    """Write what `draw` puts on an empty figure. Raises `BadConfiguration` as `check` does, or when it cannot write."""
    check(path)
    import matplotlib as mpl  # noqa: PLC0415 - as in `check`
    from matplotlib.figure import Figure  # noqa: PLC0415 - the same

    kind = _FORMATS[path.suffix.lower()]
    # Text stays text in SVG, and the same figures give the same file: no date, no random names.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "inference-worker"}):
        figure = Figure(figsize=_SIZE, dpi=_DPI, layout="constrained")
        draw(figure)
        try:
            figure.savefig(path, format=kind, metadata={"Date": None} if kind == "svg" else None)
        except OSError as error:
            raise BadConfiguration(f"--plot: cannot write {path}: {error.strerror or error}") from error
