"""The operator's functions in a real host: what they do to it costs one record, and each neighbour is answered."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests import builders
from tests.builders import POLICY, World
from tests.chunks import P0, record
from tests.python_models import hostile
from worker.assembled_model import plain_section
from worker.assembled_records import forms_of
from worker.codecs.codec import Codec
from worker.codecs.records.mapping import RecordMapping
from worker.codecs.wire_contract import Wire
from worker.core.batching.batcher import BatchPolicy
from worker.core.records import HostEnd
from worker.inference.host.keeper import Keeper
from worker.inference.host.lanes import HostLanes
from worker.inference.host.messages import Order
from worker.inference.host.process import HostProcess
from worker.inference.host.shared_memory import Heap
from worker.settings import BatchingSettings, ModelSettings, RecordsSettings

PATIENCE = 120.0  # longer than any machine needs, seconds
LIMIT = 384 << 20  # bytes of the host's memory
MODEL = Path(hostile.__file__)
FUNCTIONS = MODEL.with_name("hostile_functions.py")
# What a record asks for, and the answer to it.
ENDINGS = {666: "SIGSEGV", 667: "3", 669: "RUN_TIMEOUT_S", 673: "SIGSEGV"}
FAULTS = {
    670: ("RESOURCE_EXHAUSTED", "memory"),
    671: ("INVALID_ARGUMENT", "671 is no value that this model takes"),
    672: ("INTERNAL", "RuntimeError: it does not work for 672"),
    674: ("INTERNAL", "RecursionError"),
}
HARMS = {**{harm: ("INTERNAL", why) for harm, why in ENDINGS.items()}, **FAULTS}


class Hosts:
    """Counts the ends of hosts."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    def host_started(self, pid: int, seconds: float, why: str) -> None: ...

    def host_ended(self, end: HostEnd, why: str, batches: int) -> None:
        self.ended.append(why)


class Served:
    """A worker among fakes of Kafka, whose host is real: it serves JSON records with the hostile functions."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        model, batching = ModelSettings(path=MODEL, name="m", run_timeout_s=4), BatchingSettings()
        records = plain_section(RecordsSettings(functions=FUNCTIONS))
        self.heap, self.hosts = Heap(), Hosts()
        sections = plain_section(model), plain_section(batching, wanted_axes=batching.wanted_axes)
        order = Order(*sections, self.heap.memory.fd, LIMIT, os.getpid(), records)
        keeper = Keeper(partial(HostProcess, order), self.hosts)
        self.lanes = HostLanes(keeper, self.heap, 1, model.run_timeout_s)
        signature = keeper.facts.signature
        mapping = RecordMapping(records, signature)
        patch.setattr(builders, "FakeLanes", lambda *_: self.lanes)
        patch.setattr(builders, "Codec", partial(Codec, form_of=forms_of(mapping)))
        wire = Wire("responses", "group", "dead-letters", records=mapping)
        policy = BatchPolicy(max_rows=64, max_bytes=1 << 20, linger=POLICY.linger)
        self.world = World(served=signature, wire=wire, policy=policy).start(P0)

    def answers(self, records: Sequence[Mapping[str, Any] | bytes]) -> list[tuple[str, str | None, Any]]:
        """The answer to each record: its status, its code, and its value."""
        values = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in records]
        self.world.broker.append(*[record(at, value=value) for at, value in enumerate(values)])
        give_up = time.monotonic() + PATIENCE
        while self.world.broker.committed.get(P0) != len(records):
            self.world.turn()
            assert time.monotonic() < give_up, "not all was answered"
        found: list[tuple[str, str | None, Any]] = []
        for message in self.world.broker.answers:
            if message.topic == "responses":
                headers = {name: (value or b"").decode() for name, value in message.headers}
                assert headers["source"] == f"{P0}/{len(found)}"
                found.append((headers["status"], headers.get("error-code"), json.loads(message.value or b"")))
        return found

    def close(self) -> None:
        self.lanes.close(0.0)
        self.heap.close()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    served = Served(monkeypatch)
    yield served
    served.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("where", ["inputs", "answer"])
def test_every_harm_that_a_function_does_costs_one_record(where: str, served: Served) -> None:
    """It crashes, exits, hangs, overflows a stack, is greedy, or raises: all in one batch."""
    records: list[dict[str, Any]] = [{"n": n} for n in range(24)]
    for at, harm in enumerate(HARMS):
        records.insert(3 * at, {"n": 1000 + harm, where: harm})

    found = served.answers(records)

    for asked, (status, code, value) in zip(records, found, strict=True):
        if where in asked:
            expected, why = HARMS[asked[where]]
            assert (status, code) == ("error", expected), (asked, value)
            assert why in value["error"], (asked, value)
        else:
            assert (status, value) == ("ok", {"n": asked["n"], "twice": 2.0 * asked["n"]})
    assert len(served.hosts.ended) <= 1 + len(ENDINGS)


@pytest.mark.parametrize("levels", [150, 700, 100_000])
def test_a_record_that_nests_deeply_costs_no_other(levels: int, served: Served) -> None:
    """It crosses to the host, or is refused: it ends neither process."""
    deep = b'{"n":1,"deep":' + b"[" * levels + b"]" * levels + b"}"

    found = served.answers([{"n": 0}, deep, {"n": 2}])

    assert [status for status, *_ in found] == ["ok", "ok" if levels == 150 else "error", "ok"]
    assert served.hosts.ended == []
