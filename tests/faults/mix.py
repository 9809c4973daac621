"""One run from its first request to its verdict: the load, the planned faults, and the checker.

Owns topics, fleet, load and checker; borrows the brokers, and stops, kills and starts them.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from tests.faults.avro_records import AvroRecords
from tests.faults.books import Books
from tests.faults.brokers import Brokers
from tests.faults.checker import Checker, Topics
from tests.faults.faults import Faults
from tests.faults.fleet import Fleet
from tests.faults.history import History
from tests.faults.load import Load
from tests.faults.lost_offsets import LostOffsets
from tests.faults.memories import MEMORIES, Memory
from tests.faults.plan import Fault, Leg
from tests.faults.requests import ROWS, TABLE, WEIGHTS, Form
from tests.faults.strangers import Strangers
from tests.kafka.apicurio import Apicurio
from tests.models import fragile, save, with_memory
from tests.stores.running import RunningStore
from worker.kafka.cluster.topics import CHANGELOG_CONFIGS
from worker.kafka.reader import Reader
from worker.settings import Connection

SLICE = 0.2  # how often the fleet is looked after, seconds
ALL_ANSWERED_WITHIN = 90.0  # after the last read answer; a dead replica's transaction takes 10 s of it
PROGRESS_WITHIN = 30.0  # seconds
OFFSET = slice(8, 16)  # the bytes of a changelog value with the offset of the request that wrote it
KEYS_BESIDE_STORE = 1024  # in memory: a tenth, so that most states are read more than once
PROTOCOLS: dict[str, dict[str, str]] = {
    "consumer": {"KAFKA__GROUP_PROTOCOL": "consumer"},
    "classic": {"KAFKA__GROUP_PROTOCOL": "classic", "KAFKA__SESSION_TIMEOUT_MS": "3000"},
}


@dataclass(frozen=True)
class Options:
    """A run's options. `settings` are every replica's (`{"DELIVERY__TRANSACTION_TIMEOUT_MS": "5000"}`)."""

    guarantee: str
    legs: Sequence[Leg]
    rate: float = 300.0
    replicas: int = 3
    partitions: int = 4  # of all request topics together
    topics: int = 1  # of requests
    settings: Mapping[str, str] | None = None
    state: str = ""  # a name of MEMORIES; empty: a model without state
    requests: int | None = None  # None: for as long as the faults take
    form: Form = ROWS

    @property
    def memory(self) -> Memory | None:
        return MEMORIES[self.state] if self.state else None


@dataclass(frozen=True)
class Outcome:
    """A run's outcome."""

    options: Options
    books: Books
    fleet: Fleet
    faults: Counter[str]
    seconds: float
    unanswered_looks: int
    last_look_failed: bool  # the last look at the commits met no broker, so they are not judged
    folder: Path
    kept_in: str  # the place of states

    @property
    def broken(self) -> list[str]:
        """The names of broken promises; empty: all were kept."""
        unjudged = ["commits not judged"] if self.books.unjudged or self.last_look_failed else []
        return self.books.broken + unjudged + (["exits"] if self.fleet.broken else [])


def run(
    options: Options,
    broker: Brokers,
    folder: Path,
    store: RunningStore | None = None,
    registry: Apicurio | None = None,
) -> Outcome:
    """Do a run. The folder gets the history, and the logs of broker and replicas.

    A `store`, if given, keeps states. With a `registry` the requests are records in Avro.
    """
    with ExitStack() as stack:
        mix = Mix(options, broker, store, registry, folder, stack)
        try:
            return mix.run()
        finally:
            if broker.log.exists():
                shutil.copy(broker.log, folder / "broker.log")


class Mix:
    """A run. Everything that it starts ends with the stack."""

    def __init__(
        self,
        options: Options,
        broker: Brokers,
        store: RunningStore | None,
        registry: Apicurio | None,
        folder: Path,
        stack: ExitStack,
    ) -> None:
        self._options = options
        self._broker = broker
        self._store = store
        self._folder = folder
        self._stack = stack
        self._group = f"{folder.name}-group"
        self._topics = Topics(
            [f"{folder.name}-requests-{number}" for number in range(options.topics)],
            f"{folder.name}-answers",
            f"{folder.name}-dead",
            options.partitions,
            2,
        )
        self._form = options.form
        if registry is not None:
            self._form = AvroRecords(registry.url, self._topics.requests, self._topics.answers).form
        self._history = stack.enter_context(History(folder / "history.jsonl"))
        self._books = Books(
            options.partitions,
            exactly_once=options.guarantee == "exactly_once",
            memory=options.memory,
            form=self._form,
            firsts=self._topics.firsts,
            tell=lambda promise, how: self._history.write("broken", promise=promise, how=how),
        )
        self._fleet = stack.enter_context(Fleet(self._settings(), options.replicas, folder, self._history))
        self._faults = Faults(
            self._fleet,
            broker,
            store,
            registry,
            group=self._group,
            topics=self._topics.requests,
            size=options.replicas,
            rest=self._rest,
            be_silent=self._be_silent,
            lost_offsets=LostOffsets(
                self._fleet,
                broker,
                group=self._group,
                topics=self._topics,
                is_refused=options.guarantee == "exactly_once" and options.memory is not None,
                tell=self._books.lost_offset,
            ),
        )
        self._done: Counter[str] = Counter()

    def run(self) -> Outcome:
        """Do the legs one after the other under one load, and then judge."""
        self._create_topics()
        servers = self._broker.bootstrap_servers
        self._history.write("began", **{k: str(v) for k, v in vars(self._options).items() if k not in ("legs", "form")})
        self._checker = self._stack.enter_context(
            Checker(servers, self._group, self._topics, self._books, self._history)
        )
        self._faults.strangers = Strangers(
            servers,
            self._broker.disks,
            self._topics,
            self._books,
            self._checker,
            self._rest,
            form=self._form,
            has_state=bool(self._options.state),
        )
        self._begin(self._options.legs[0])
        options = self._options
        load = self._load = self._stack.enter_context(
            Load(servers, self._topics, options.rate, self._books, self._history, options.requests, self._form)
        )
        began = self._history.now
        for number, leg in enumerate(options.legs):
            if number and not load.is_over:
                self._fleet.end()
                self._begin(leg)
            for fault in leg.faults:
                self._rest(began + fault.starts - self._history.now)
                if fault.kind.stops_all:
                    self._await_progress()
                if not load.is_over:
                    self._do(fault)
        while options.requests is not None and not load.is_over:
            self._rest(SLICE)
        load.stop(ALL_ANSWERED_WITHIN)
        seconds = self._history.now - began
        self._await_answers(lambda: self._books.is_all_done)
        self._fleet.end()
        self._checker.finish(ALL_ANSWERED_WITHIN)
        self._books.close()
        if options.state:
            self._books.restored(self._last_states() if self._store is None else self._stored_states(self._store))
        return Outcome(
            options,
            self._books,
            self._fleet,
            self._done,
            seconds,
            self._checker.unanswered_looks,
            self._checker.last_look_failed,
            self._folder,
            "the changelog" if self._store is None else "a store outside",
        )

    def _begin(self, leg: Leg) -> None:
        self._history.write("leg", protocol=leg.protocol, ids=leg.ids)
        self._tell(f"{leg.protocol} group, {leg.ids} transactional ids")
        self._faults.protocol = leg.protocol
        self._fleet.begin(PROTOCOLS[leg.protocol], stable_ids=leg.ids == "stable")

    def _do(self, fault: Fault) -> None:
        began = self._history.now
        self._history.write("fault", **fault._asdict())
        whom = self._faults.do(fault)
        self._history.write("fault_over", kind=fault.kind, to=whom)
        self._done[fault.kind] += 1
        self._tell(f"{fault.kind}: {whom}, over after {self._history.now - began:.1f} s")
        self._checker.look()
        self._rest(fault.calm)

    def _rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while True:
            self._fleet.mend()
            self._fleet.measure()
            self._checker.expect_alive()
            if (left := until - time.monotonic()) <= 0:
                return
            time.sleep(min(left, SLICE))

    def _be_silent(self, seconds: float) -> None:
        self._load.pause()
        self._await_answers(lambda: self._books.is_all_answered)  # commits are seen with a delay
        self._rest(seconds)
        self._load.resume()

    def _await_progress(self) -> None:
        """Wait until each partition answers again, within limits: else a slow machine would always lack its broker."""
        over = self._history.now
        while not self._books.all_answered_since(over):
            if self._history.now > over + PROGRESS_WITHIN:
                return
            self._rest(SLICE)

    def _await_answers(self, is_all: Callable[[], bool]) -> None:
        """Wait until `is_all`, or no more answers come: the books say what is missing."""
        answers, last = 0, self._history.now
        while not is_all() and self._history.now < last + ALL_ANSWERED_WITHIN:
            if self._books.answers > answers:
                answers, last = self._books.answers, self._history.now
            self._rest(SLICE)

    def _tell(self, what: str) -> None:
        found = ", ".join(f"{count} {name}" for name, count in self._books.found.items())
        line = f"{self._history.now:7.1f} s  {what}; {self._books.answers:,} answers" + (f", {found}" if found else "")
        sys.stderr.write(line + "\n")

    def _create_topics(self) -> None:
        topics = self._topics
        counts = dict.fromkeys([*topics.requests, topics.answers], topics.each)
        counts[topics.dead] = topics.dead_partitions
        configs: dict[str, dict[str, str]] = {}
        if self._options.state and self._store is None:
            counts[self._changelog] = topics.each
            configs[self._changelog] = dict(CHANGELOG_CONFIGS)
        admin = AdminClient({"bootstrap.servers": self._broker.bootstrap_servers})
        for future in admin.create_topics(
            [
                NewTopic(n, num_partitions=c, replication_factor=self._broker.count, config=configs.get(n, {}))
                for n, c in counts.items()
            ]
        ).values():
            future.result(30.0)

    @property
    def _changelog(self) -> str:
        return f"{self._group}-state"  # as it is called unless it is set

    def _last_states(self) -> dict[bytes, bytes]:
        """Each key's valid value in the changelog: exactly once the last one.

        At least once it is the latest request's: a replica that stood still may have written an older one behind it. No
        request has a key forgotten.
        """
        with Reader(Connection(bootstrap_servers=self._broker.bootstrap_servers), self._changelog) as reader:
            records = [(record.key or b"", record.value or b"") for record in reader.up_to_ends(reader.beginnings)]
        if self._options.guarantee == "at_least_once":
            records.sort(key=lambda record: int.from_bytes(record[1][OFFSET], "little"))
        return dict(records)

    def _stored_states(self, store: RunningStore) -> dict[bytes, bytes]:
        return store.values(f"{self._group}-state:")

    def _settings(self) -> dict[str, str]:
        model, memory = fragile(TABLE, WEIGHTS), self._options.memory
        with_state: dict[str, str] = {}
        if memory is not None:
            model = with_memory(model, memory.model, memory.columns)
            with_state |= {"STATE__TENSORS": json.dumps(memory.tensors)}
        if self._store is not None:
            with_state |= {"STATE__STORE": self._store.url, "STATE__KEYS_IN_MEMORY": str(KEYS_BESIDE_STORE)}
        return {
            "KAFKA__BOOTSTRAP_SERVERS": self._broker.bootstrap_servers,
            "KAFKA__REQUEST_TOPICS": ",".join(self._topics.requests),
            "KAFKA__RESPONSE_TOPIC": self._topics.answers,
            "KAFKA__DEAD_LETTER_TOPIC": self._topics.dead,
            "KAFKA__GROUP_ID": self._group,
            "MODEL__PATH": str(save(model, self._folder)),
            "MODEL__DEVICE": "cpu",
            "DELIVERY__GUARANTEE": self._options.guarantee,
            **with_state,
            **self._form.settings,
            **(self._options.settings or {}),
        }
