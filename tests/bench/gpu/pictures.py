"""Pictures of the parts' JSON files: where a larger batch stops paying, and what part of that the worker gives."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench.gpu.parts import knee, main
from tests.bench.gpu.results import read
from worker.tools.picture import COLOURS, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONTENDERS = {
    "worker, one lane": "the worker",
    "worker, two lanes": "the worker with two lanes",
    "hand_loop": "a loop by hand",
    "one_by_one": "one by one",
}
HEIGHT = 0.21  # of a bar, where 1 is the distance from one network to the next


def draw(folder: Path, into: Path) -> None:
    """`gpu-knee.svg` and `gpu-share.svg`, each where its part was measured."""
    into.mkdir(parents=True, exist_ok=True)
    for part, name, drawn in ((knee.PART, "gpu-knee.svg", _knee), (main.PART, "gpu-share.svg", _share)):
        if (found := read(folder, part.name)) is not None:
            save(into / name, partial(drawn, found))


def _knee(found: Mapping[str, Any], figure: Figure) -> None:
    """Both axes are logarithmic, so that twice the rows in twice the time is a level line."""
    axes = figure.add_subplot()
    networks = list(_by_network(found))
    rows = sorted({int(line["batch"] or 0) for _, lines in networks for line in lines})
    for (name, lines), colour in zip(networks, COLOURS, strict=False):
        axes.plot([line["batch"] for line in lines], [line["rate"] for line in lines], "o-", color=colour, label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(rows, [str(count) for count in rows])
    axes.yaxis.set_major_formatter("{x:,.10g}")
    axes.set_xlabel("rows in a batch")
    axes.set_ylabel("rows per second")
    axes.set_title("ONNX Runtime alone, by the rows of a batch", fontsize="medium")
    axes.grid(visible=True, alpha=0.2)
    axes.legend(frameon=False)


def _share(found: Mapping[str, Any], figure: Figure) -> None:
    """A group of bars for each network, the first at the top."""
    axes = figure.add_subplot()
    networks = list(_by_network(found))
    for at, (contender, label) in enumerate(CONTENDERS.items()):
        places = [place + (at - 1.5) * HEIGHT for place in range(len(networks))]
        shares = [
            next((line["share"] for line in lines if line["contender"] == contender), math.nan) for _, lines in networks
        ]
        bars = axes.barh(places, shares, HEIGHT, color=COLOURS[at], label=label)
        axes.bar_label(bars, fmt="%.2f", padding=3, fontsize="small")
    axes.axvline(1.0, color="grey", linestyle=":")
    axes.set_yticks(range(len(networks)), [name for name, _ in networks])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.35)
    axes.set_xlabel("from Kafka to Kafka, as a part of what ONNX Runtime does alone")
    figure.legend(loc="outside lower center", ncols=2, fontsize="small", frameon=False)


def _by_network(found: Mapping[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    measured = [line for line in found["lines"] if "failed" not in line]
    for name, lines in groupby(measured, lambda line: f"{line['network']}, {line['precision']}"):
        yield name, list(lines)
