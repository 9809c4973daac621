"""`python -m tests.faults.run`: the mix, on brokers of its own, for one guarantee or both; `--help` says more.

Exit code 1: a promise was broken; 130: Ctrl-C. The seed fixes the faults, their order and their lengths, but not the
processes' reactions.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.faults.brokers import Brokers
from tests.faults.memories import MEMORIES
from tests.faults.mix import Options, run
from tests.faults.plan import kinds, plan, rounds_in
from tests.faults.records import FUNCTIONS, ROWS_OF_JSON
from tests.faults.requests import ROWS
from tests.faults.table import table
from tests.kafka.apicurio import Apicurio
from tests.kafka.broker import FORGETFUL, JvmBroker
from tests.kafka.trio import Trio
from tests.stores.running import RunningStore

FORMS = {"": ROWS, "rows": ROWS_OF_JSON, "functions": FUNCTIONS, "avro": ROWS}  # Avro's form wants the registry
GUARANTEES = ("at_least_once", "exactly_once")


def main() -> int:
    """Run what the command line asks for."""
    parser = _parser()
    asked = parser.parse_args()
    guarantees = GUARANTEES if asked.guarantee == "both" else (asked.guarantee,)
    if asked.store and (guarantees != ("at_least_once",) or not asked.state):
        parser.error("--store wants --guarantee at_least_once and --state: a store has no part in transactions")
    try:
        broken = [guarantee for guarantee in guarantees if not _keeps(guarantee, asked)]
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: nothing is proved of what was not told above\n")
        return 130
    return 1 if broken else 0


def _keeps(guarantee: str, asked: argparse.Namespace) -> bool:
    folder = asked.folder / f"{guarantee.replace('_', '-')}-{asked.seed}-{int(time.time())}"
    folder.mkdir(parents=True)
    ids = asked.ids if guarantee == "exactly_once" else "unique"
    minutes = asked.minutes if asked.requests is None else asked.requests / asked.rate / 60.0
    with ExitStack() as stack:
        forgets = asked.records != "functions"
        brokers = stack.enter_context(_brokers(guarantee, FORGETFUL if forgets else {}))
        # `always`: acknowledged writes outlive a kill, however slow the disk is.
        store = stack.enter_context(RunningStore(folder, "--appendfsync", "always")) if asked.store else None
        registry = stack.enter_context(Apicurio()) if asked.records == "avro" else None
        each = kinds(
            guarantee, brokers.count, has_store=asked.store, has_registry=registry is not None, forgets=forgets
        )
        options = Options(
            guarantee,
            plan(asked.seed, rounds_in(minutes, len(each)), each, protocol=asked.protocol, ids=ids),
            rate=asked.rate,
            replicas=asked.replicas,
            topics=asked.topics,
            settings=dict(asked.set),
            state=asked.state,
            requests=asked.requests,
            form=FORMS[asked.records],
        )
        outcome = run(options, brokers, folder, store, registry)
    shown = table(outcome, " ".join(["python -m tests.faults.run", *sys.argv[1:]]))
    (folder / "table.txt").write_text(shown + "\n")
    sys.stdout.write(f"\n{shown}\n")
    sys.stdout.flush()
    return not outcome.broken


@contextmanager
def _brokers(guarantee: str, config: Mapping[str, str]) -> Iterator[Brokers]:
    """Three brokers for exactly once: a lone one loses the ends of transactions when it restarts."""
    if guarantee == "exactly_once":
        with Trio(config) as trio:
            yield Brokers(trio.nodes, trio.wait_until_in_sync)
    else:
        with JvmBroker() as broker:
            yield Brokers([broker])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.run", description="A seeded mix of faults.")
    say = parser.add_argument
    say("--guarantee", choices=[*GUARANTEES, "both"], default="both")
    say("--seed", type=int, default=1, help="fixes the faults (1)")
    say("--minutes", type=float, default=5.0, help="for each guarantee (5)")
    say("--rate", type=float, default=300.0, help="requests a second (300)")
    say("--replicas", type=int, default=3, help="at least 2 (3)")
    say("--topics", type=int, choices=[1, 2, 4], default=1, help="request topics, with four partitions together (1)")
    say("--protocol", choices=["turns", "consumer", "classic"], default="turns", help="of the group (turns)")
    say("--ids", choices=["turns", "unique", "stable"], default="turns", help="transactional ids (turns)")
    say(
        "--set",
        type=_setting,
        action="append",
        default=[],
        metavar="DELIVERY__COMMIT_INTERVAL_MS=50",
        help="a setting of every replica, without the prefix; static members: KAFKA__GROUP_INSTANCE_ID=member-{slot}",
    )
    say("--requests", type=int, help="so many, in the place of --minutes: the faults stop with the last one")
    say("--state", choices=MEMORIES, default="", help="a model with state: a GRU, or the mean of what came")
    say(
        "--records",
        choices=list(FORMS)[1:],
        nargs="?",
        const="rows",
        default="",
        help="JSON records with an array of rows (rows), or for functions that do harm, or Avro with a registry",
    )
    say("--store", action="store_true", help="states are kept in a Valkey or Redis, which is killed, too")
    say("--folder", type=Path, default=Path("build/faults"), help="for history and logs (build/faults)")
    return parser


def _setting(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


if __name__ == "__main__":
    sys.exit(main())
