"""Faults of replicas, group, broker, store and registry: a method for each kind, which returns when it is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from tests.faults.brokers import Brokers
from tests.faults.fleet import SPARED, Fleet
from tests.faults.lost_offsets import LostOffsets
from tests.faults.plan import Fault, Kind
from tests.faults.strangers import Strangers
from tests.kafka.apicurio import Apicurio
from tests.kafka.broker import FORGOTTEN_AFTER
from tests.kafka.cluster import Cluster
from tests.stores.running import RunningStore


class Faults:
    """Does faults, one at a time. Owns nothing; `rest(seconds)` waits, and looks after the fleet meanwhile.

    `be_silent(seconds)` waits once all is answered, and nothing is published meanwhile.
    """

    def __init__(
        self,
        fleet: Fleet,
        broker: Brokers,
        store: RunningStore | None,
        registry: Apicurio | None,
        *,
        group: str,
        topics: Sequence[str],
        size: int,
        rest: Callable[[float], None],
        be_silent: Callable[[float], None],
        lost_offsets: LostOffsets,
    ) -> None:
        self.protocol = "consumer"  # of the leg that runs
        self.strangers: Strangers  # set before the first fault
        self._fleet = fleet
        self._broker = broker
        self._store = store
        self._registry = registry
        self._group = group
        self._topics = topics
        self._rest = rest
        self._be_silent = be_silent
        self._size = size
        self._do = {
            Kind.KILL: self._kill,
            Kind.HOST_KILL: self._kill_host,
            Kind.TERMINATE: self._terminate,
            Kind.SUSPEND: self._suspend,
            Kind.REBALANCE: self._rebalance,
            Kind.LOST_OFFSET: lost_offsets.do,
            Kind.BROKER_STOP: self._stop_broker,
            Kind.BROKER_KILL: self._kill_broker,
            Kind.BROKER_SUSPEND: self._suspend_broker,
            Kind.SILENCE: self._silence,
            Kind.SPOILED: self._spoil_batch,
            Kind.OPEN: self._hold_transaction,
            Kind.STORE_KILL: self._kill_store,
            Kind.STORE_SUSPEND: self._suspend_store,
            Kind.REGISTRY_STOP: self._stop_registry,
            Kind.REGISTRY_SUSPEND: self._suspend_registry,
        }

    def do(self, fault: Fault) -> str:
        """Do the fault; return a sentence about it."""
        return self._do[fault.kind](fault)

    def _kill(self, fault: Fault) -> str:
        slot = self._victim(fault)
        name = self._fleet.slots[slot].name
        self._fleet.kill(slot)
        self._replace(slot, fault.seconds)
        return name

    def _kill_host(self, fault: Fault) -> str:
        """Kill the model's process twice: at once, and again at some instant of the next one's start or first runs."""
        slot = fault.choose(self._size)
        self._fleet.kill_host(slot)
        self._rest(fault.seconds)
        self._fleet.kill_host(slot)
        return f"{self._fleet.slots[slot].name} twice, {fault.seconds:.1f} s apart"

    def _terminate(self, fault: Fault) -> str:
        slot = self._victim(fault)
        name = self._fleet.slots[slot].name
        self._fleet.terminate(slot)
        self._replace(slot, fault.seconds)
        return name

    def _victim(self, fault: Fault) -> int:
        return SPARED + fault.choose(self._size - SPARED)

    def _replace(self, slot: int, after: float) -> None:
        self._rest(after)
        self._fleet.start(slot)
        self._fleet.wait_until_ready(slot)

    def _suspend(self, fault: Fault) -> str:
        slot = fault.choose(self._size)
        self._fleet.suspend(slot)
        self._rest(fault.seconds)
        self._fleet.resume(slot)
        return f"{self._fleet.slots[slot].name} for {fault.seconds:.1f} s"

    def _rebalance(self, fault: Fault) -> str:
        """Let a further member join and leave: a whole replica, or one that takes partitions and does nothing."""
        if fault.pick < 0.5:
            self._visit(fault.seconds)
            return f"an idle member for {fault.seconds:.1f} s"
        slot = self._size
        guest = self._fleet.start(slot)
        self._fleet.wait_until_ready(slot)
        self._rest(fault.seconds)
        self._fleet.terminate(slot)
        return f"{guest.name} for {fault.seconds:.1f} s"

    def _visit(self, seconds: float) -> None:
        visitor = Cluster(self._broker.bootstrap_servers).visitor(self._group, self.protocol, self._topics)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            visitor.poll(0.05)
        visitor.close()

    def _stop_broker(self, fault: Fault) -> str:
        self._broker.stop()
        return self._broker_away(fault.seconds)

    def _kill_broker(self, fault: Fault) -> str:
        self._broker.kill()
        return self._broker_away(fault.seconds)

    def _suspend_broker(self, fault: Fault) -> str:
        self._broker.suspend()
        self._rest(fault.seconds)
        self._broker.start()
        return f"silent for {fault.seconds:.1f} s"

    def _broker_away(self, seconds: float) -> str:
        self._rest(seconds)
        self._broker.start()
        return f"away for {seconds:.1f} s and its start"

    def _silence(self, fault: Fault) -> str:
        """Wait until brokers forget the unused transactional ids: each producer's next transaction is refused."""
        seconds = FORGOTTEN_AFTER + fault.seconds
        self._be_silent(seconds)
        return f"no request for {seconds:.1f} s"

    def _spoil_batch(self, fault: Fault) -> str:
        return self.strangers.spoil_batch(fault)

    def _hold_transaction(self, fault: Fault) -> str:
        return self.strangers.hold_transaction(fault)

    def _kill_store(self, fault: Fault) -> str:
        assert self._store is not None
        self._store.stop()
        self._rest(fault.seconds)
        self._store.start()
        return f"away for {fault.seconds:.1f} s and its start"

    def _suspend_store(self, fault: Fault) -> str:
        assert self._store is not None
        self._store.suspend()
        self._rest(fault.seconds)
        self._store.resume()
        return f"silent for {fault.seconds:.1f} s"

    def _stop_registry(self, fault: Fault) -> str:
        assert self._registry is not None
        self._registry.stop()
        self._rest(fault.seconds)
        self._registry.start()
        return f"away for {fault.seconds:.1f} s and its start"

    def _suspend_registry(self, fault: Fault) -> str:
        assert self._registry is not None
        self._registry.suspend()
        self._rest(fault.seconds)
        self._registry.heal()
        return f"silent for {fault.seconds:.1f} s"
