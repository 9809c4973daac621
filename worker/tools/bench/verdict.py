"""What the figures say of batching, in words: how much it buys here, or why it buys nothing. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from worker.terminal.terminal import count, milliseconds
from worker.tools.bench.columns import ContenderKind
from worker.tools.bench.report import Account, LoadLine, Spread

# A batch makes each of its requests wait for the others, so it should buy a fifth. Rounds of one contender differ by as
# much on a machine of two cores that has other work.
WORTH = 1.2
# From such a part on, of the time or of what a loop that only copies does, that is what sets the limit.
MOST = 0.8
# Fewer requests than this share a batch: next to none are batched.
TOGETHER = 1.5
_AS_MANY = "as many requests a second as one by one"


class _Measured(NamedTuple):
    """One contender at its maximum."""

    account: Account
    line: LoadLine
    rate: Spread

    @property
    def name(self) -> str:
        return self.account.part.column.name


def verdict(accounts: Sequence[Account], request_rows: int) -> str | None:
    """None where the worker or the loop that answers one by one was not measured."""
    workers, alone = _measured(accounts, ContenderKind.WORKER), _measured(accounts, ContenderKind.ONE_BY_ONE)
    if not workers or not alone:
        return None
    best, single = workers[-1], alone[-1]
    gain = best.rate.median / single.rate.median
    if (why := _doubt(best, single, gain, request_rows)) is not None:
        return f"No verdict on batching: {why}."
    name = best.name if best.account.part.column.settings else "the worker"
    who = name if len(workers) == 1 else f"{name}, the best of {count(len(workers), 'worker')},"
    if gain < WORTH:
        why = _because(best, _measured(accounts, ContenderKind.PASS_THROUGH), request_rows)
        return f"Do not batch here: {who} answers {gain:.1f} times {_AS_MANY}, because {why}."
    return " ".join([f"Batch: {who} answers {gain:.1f} times {_AS_MANY}.", *_latencies(best, single)])


def _measured(accounts: Sequence[Account], kind: ContenderKind) -> list[_Measured]:
    """Those of a kind, the best last."""
    found = [
        _Measured(each, each.maximum, each.maximum.rate)
        for each in accounts
        if each.part.column.kind is kind and each.maximum and each.maximum.rate
    ]
    return sorted(found, key=lambda each: each.rate.median)


def _doubt(best: _Measured, single: _Measured, gain: float, request_rows: int) -> str | None:
    """Why the figures say nothing."""
    for each in (best, single):
        if each.account.errors:
            return f"{each.name} answered with errors"
        if not each.line.is_paced:
            return f"the maximum of {each.name} is the load generator's own (*)"
    if (most := best.account.part.max_batch_size) <= request_rows:
        return f"nothing was batched, as a batch takes {count(most, 'row')} (MAX_BATCH_SIZE)"
    if gain >= WORTH and best.rate.least <= single.rate.most:
        return f"rounds of {best.name} and {single.name} overlap; measure on a quiet machine, or with more --rounds"
    return None


def _because(best: _Measured, copy: Sequence[_Measured], request_rows: int) -> str:
    rows, busy = best.line.cost.rows_per_batch, best.line.cost.lane_busy
    if rows is not None and rows.median / request_rows < TOGETHER:
        together = f"{rows.median:.1f} rows in one"
        return f"requests hardly share batches ({together}): their shapes differ, or too few are under way"
    if copy and best.rate.median >= MOST * copy[-1].rate.median:
        return "Kafka's clients set the limit and not the model: a loop that only copies does little more"
    if busy is not None and busy.median >= MOST:
        return "the model takes as long for the rows of a batch together as for one after the other"
    return "what a request costs besides the model is more than batches save there"


def _latencies(best: _Measured, single: _Measured) -> Iterator[str]:
    """At the highest load that both were measured under: what batches cost, or save, who waits for an answer."""
    pairs = zip(best.account.steady, single.account.steady, strict=True)
    both = [(ours, theirs, ours.load) for ours, theirs in pairs if ours.load and _has_p99(ours) and _has_p99(theirs)]
    for ours, theirs, load in both[-1:]:
        yield f"At {load.rate:,.0f} a second its p99 is {_p99(ours)}, one by one's {_p99(theirs)}."


def _has_p99(line: LoadLine) -> bool:
    return "p99" in line.latency_ms


def _p99(line: LoadLine) -> str:
    return milliseconds(line.latency_ms["p99"].median)
