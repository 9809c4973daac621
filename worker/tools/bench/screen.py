"""What `bench` shows people: the figures as tables, and in the end what they say of batching.

Fits 80 columns and a pipe; a wide terminal also gets what each load cost. Names come from the command line and nothing
is read as markup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from worker.terminal.terminal import count, page, printable, write
from worker.tools.bench.columns import ContenderKind
from worker.tools.bench.report import Account, LoadLine, Spread, warnings
from worker.tools.bench.verdict import verdict
from worker.tools.load.figures import QUANTILES

MIB = 1024 * 1024
# From this width on the tables have all columns.
WIDE = 120
# A setting of the usual length in a line; the figures keep their places from table to table.
_NAME_WIDTH, _RATE_WIDTH, _LATENCY_WIDTH = 17, 13, 6
_NONE = "–"


def show(accounts: Sequence[Account], facts: Mapping[str, Any]) -> None:
    screen = page()
    for sentence in _subject(facts):
        screen.print(Text(sentence))
    is_wide = screen.width >= WIDE
    _print(screen, "Maximum", _maxima(accounts, is_wide=is_wide))
    for title, lines in _loads(accounts):
        _print(screen, title, _steady(lines, is_wide=is_wide))
    screen.print()
    for sentence in _legend(accounts, facts):
        screen.print(Text(sentence))
    for warning in warnings(accounts):
        screen.print(Text(printable(warning), "yellow"))
    if (told := verdict(accounts, facts["request"]["rows"])) is not None:
        screen.print()
        screen.print(Text(printable(told), "bold"))


def _subject(facts: Mapping[str, Any]) -> Iterator[str]:
    request, machine, broker = facts["request"], facts["machine"], facts["broker"]
    where = "a mock broker inside this process" if broker["is_embedded"] else broker["bootstrap_servers"]
    rows = count(request["rows"], "row")
    yield printable(f"{facts['model']['name']}, requests of {rows} ({request['encoding']}, {request['bytes']:,} bytes)")
    if request["open_axes"]:
        yield printable(_made_up(request["open_axes"]))
    yield printable(f"on {where}, {broker['partitions']} partitions, {count(facts['replicas'], 'replica')} of each")
    yield (
        f"medians of {count(facts['rounds'], 'round')}, {facts['seconds']:g} s a load; "
        f"{count(machine['processors'], 'processor')}, load average {machine['load_average']:g} before"
    )
    if broker["is_embedded"]:
        yield "A mock is not a Kafka: compare these figures with each other, and with no others."


def _made_up(axes: Mapping[str, Mapping[str, int]]) -> str:
    """Said because costs may grow with the square of a length, and only equal lengths share a batch without buckets."""
    spans = {axis: f"{span['min']} to {span['max']}" for axis, span in axes.items()}
    told = ", ".join(f"{axis} is {span} long" for axis, span in spans.items())
    return f"{told}: the model's file leaves that open. All figures are for such lengths and no others."


def _print(screen: Console, title: str, table: Table) -> None:
    screen.print()
    screen.print(Text(title, "bold"))
    write(screen, table)


def _table(heads: Sequence[str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("", width=_NAME_WIDTH, overflow="fold")
    table.add_column(heads[0], justify="right", no_wrap=True, min_width=_RATE_WIDTH)
    for head in heads[1:]:
        table.add_column(head, justify="right", no_wrap=True, min_width=_LATENCY_WIDTH if head.endswith("ms") else None)
    return table


def _maxima(accounts: Sequence[Account], *, is_wide: bool) -> Table:
    single = _rate_of(accounts, ContenderKind.ONE_BY_ONE)
    ceiling = _rate_of(accounts, ContenderKind.PASS_THROUGH)
    heads = ["requests/s", "× one\nby one", "of\ncopy", *_cost_heads(is_wide=is_wide)]
    table = _table(heads)
    for account in accounts:
        if (line := account.maximum) is None:
            continue
        rate = _cell(line.rate, _rate, "" if line.is_paced else " *")
        shares = [_ratio(line.rate, single, "{:.1f}".format), _ratio(line.rate, ceiling, "{:.0%}".format)]
        table.add_row(_name(account), rate, *shares, *_cost(line, is_wide=is_wide))
    return table


def _loads(accounts: Sequence[Account]) -> Iterator[tuple[str, Sequence[tuple[Account, LoadLine]]]]:
    """Each load with its title, and all that were measured under it."""
    for at, first in enumerate(accounts[0].steady):
        if (load := first.load) is None:
            continue
        part = f", {load.asked.number:.0%} of the first maximum" if load.asked.is_part else ""
        yield f"{load.rate:,.0f} requests a second{part}", [(a, a.steady[at]) for a in accounts if a.steady]


def _steady(lines: Sequence[tuple[Account, LoadLine]], *, is_wide: bool) -> Table:
    latencies = [f"{name}\nms" for name in QUANTILES]
    table = _table(["answers/s", *latencies, *(_cost_heads(is_wide=True) if is_wide else ())])
    for account, line in lines:
        if not line.rounds:
            table.add_row(_name(account), *[_NONE] * (len(table.columns) - 1))
            continue
        mark = ("" if line.is_paced else " *") + ("" if line.keeps_up else " †")
        rate = Text(f"{_rate(line.rate.median)}{mark}" if line.rate else _NONE)
        costs = _cost(line, is_wide=True) if is_wide else []
        table.add_row(_name(account), rate, *_latencies(line, is_wide=is_wide), *costs)
    return table


def _latencies(line: LoadLine, *, is_wide: bool) -> Iterator[Text]:
    """The p99 with its least and most, a wide screen all of them."""
    for name in QUANTILES:
        spread = line.latency_ms.get(name)
        yield _cell(spread, _short) if is_wide or name == "p99" else Text(_short(spread.median) if spread else _NONE)


def _cost_heads(*, is_wide: bool) -> list[str]:
    fill = ["batch\nfill"] if is_wide else []
    return ["rows a\nbatch", *fill, "lane\nbusy", "CPU s/\nM rows", "peak\nMiB"]


def _cost(line: LoadLine, *, is_wide: bool) -> list[str]:
    cost = line.cost
    fill = [_median(cost.batch_fill, "{:.0%}".format)] if is_wide else []
    return [
        _median(cost.rows_per_batch, "{:,.1f}".format),
        *fill,
        _median(cost.lane_busy, "{:.0%}".format),
        _median(cost.cpu_seconds_per_million_rows, _short),
        _median(cost.peak_memory_bytes, lambda found: f"{found / MIB:,.0f}"),
    ]


def _cell(spread: Spread | None, write: Callable[[float], str], mark: str = "") -> Text:
    """The median, and below it the least and the most, if there was more than one round."""
    if spread is None:
        return Text(_NONE)
    if spread.least == spread.most:
        return Text(f"{write(spread.median)}{mark}")
    return Text.assemble(f"{write(spread.median)}{mark}\n", (f"{write(spread.least)}–{write(spread.most)}", "dim"))


def _median(spread: Spread | None, write: Callable[[float], str]) -> str:
    return _NONE if spread is None else write(spread.median)


def _ratio(spread: Spread | None, to: float | None, write: Callable[[float], str]) -> str:
    return _NONE if spread is None or not to else write(spread.median / to)


def _rate_of(accounts: Sequence[Account], kind: ContenderKind) -> float | None:
    for account in accounts:
        if account.part.column.kind is kind and account.maximum and account.maximum.rate:
            return account.maximum.rate.median
    return None


def _name(account: Account) -> Text:
    """Settings one below the other."""
    column = account.part.column
    return Text(printable(column.name).replace(" ", "\n") if column.settings else column.name)


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value < 100_000 else f"{value / 1000:,.0f}k"


def _short(value: float) -> str:
    """Three figures."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _legend(accounts: Sequence[Account], facts: Mapping[str, Any]) -> Iterator[str]:
    yield "Latency counts from the instant a request is due until its answer is read."
    yield (
        "One by one: a plain loop, poll, run, produce. Pass-through: a loop that only copies (of copy), the most that "
        "these clients carry here. Neither checks anything or keeps a promise."
    )
    if facts["maximum_of"] == "window":
        yield "A mock keeps no backlog: the maximum is of a window, half a second's requests under way."
    else:
        yield "The maximum is of a backlog, worked off while nothing more is published."
    if any(not line.rounds for account in accounts for line in account.steady):
        yield "Not measured (–): a load that is more than the contender's maximum."
    paced = [line for account in accounts for line in account.steady if line.rounds and line.is_paced]
    if any(len(line.latency_ms) < len(QUANTILES) for line in paced):
        yield "A quantile that too few requests tell is left out: p99.9 wants 1,000 of them; see --seconds."
