"""Back-pressure and suspicion through any history."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.builders import CHUNK, record, rejection, request
from worker.core.intake import RESERVE, Bounds, Intake
from worker.core.ledger import OffsetLedger
from worker.core.suspicion import PATIENCE, Suspicion

STEPS = st.lists(st.tuples(st.sampled_from(["take", "settle", "glance"]), st.integers(1, 50)), max_size=80)


@given(st.integers(1, 40), STEPS)
def test_what_is_taken_never_passes_bound_and_reserve(bound: int, steps: list[tuple[str, int]]) -> None:
    """Whoever takes no more than there is room for, and glances only while it may, stays within both."""
    ledger = OffsetLedger()
    gate = Intake(Bounds(records=bound, rows=10_000, size=10_000), ledger, CHUNK)
    held = []
    offset = 0
    for step, many in steps:
        room = gate.room()
        assert 0 <= room <= CHUNK
        assert (room == 0) == gate.is_full
        coming = min(room, many) if step == "take" else int(step == "glance" and not room and not gate.should_pause())
        for _ in range(coming):
            held.append(ledger.track(record(offset), 1, 1, 0.0))
            offset += 1
        if coming:
            gate.took(coming, coming, coming)
        if step == "glance" and not room:
            gate.took_from_reserve(coming)
        if step == "settle":
            for place in held[:many]:
                ledger.answer([(place, rejection(place.offset))])
                ledger.settle([place])
            held = held[many:]
        gate.should_pause()
        assert ledger.records <= bound + RESERVE
    for place in held:
        ledger.answer([(place, rejection(place.offset))])
        ledger.settle([place])
    assert not gate.should_pause()
    assert gate.room() > 0


@given(st.lists(st.sampled_from(["culprit", "split", "success", "ask", "probed"]), max_size=120))
def test_every_suspect_leaves_once_and_only_with_proof(events: list[str]) -> None:
    """No rejection leaves before a success or a probe, none twice, and none stays once the lanes are idle."""
    suspicion = Suspicion()
    waiting: list[int] = []
    failures = probes_out = 0
    for number, event in enumerate(events):
        if event == "culprit":
            waiting.append(number)
            failures += 1
            suspicion.failed((request(number), rejection(number)))
        elif event == "split":
            failures += 1
            suspicion.failed()
        elif event == "ask":
            wanted = suspicion.wants_probe(lanes_are_idle=False)
            assert wanted == (failures >= PATIENCE and not probes_out)
            probes_out += wanted
        elif event == "success" or probes_out:
            if event == "probed":
                suspicion.probed()
                probes_out = 0
            assert [r.record.offset for r, _ in suspicion.cleared()] == waiting
            waiting, failures = [], 0
    if not probes_out:
        assert suspicion.wants_probe(lanes_are_idle=True) == (bool(waiting) or failures >= PATIENCE)
