"""Back-pressure and the device check through any history."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.chunks import POLL, chunk, record, settled, taken
from tests.meeting import meeting, met
from worker.core.batching.back_pressure import RESERVE, Bounds, Intake
from worker.core.chunk import refusal
from worker.core.failures import Code
from worker.core.ordering.ledger import OffsetLedger, Place
from worker.loop.outcomes import PATIENCE, DeviceCheck

# Fetching pauses only when every glance for a while has brought a record, so stalls are drawn as a whole.
STEPS = st.lists(
    st.tuples(st.sampled_from(["take", "settle", "glance"]), st.integers(1, 50)).map(lambda step: [step])
    | st.integers(1, 20).map(lambda many: [("settle", many)] * 3)
    | st.integers(RESERVE // 2, 2 * RESERVE).map(lambda times: [("take", 50), *[("glance", 1)] * times]),
    max_size=12,
).map(lambda parts: [step for part in parts for step in part])


@meeting("the bound is reached", "the reserve is used", "fetching pauses", "fetching goes on before all is settled")
@given(st.integers(1, 40), STEPS)
def test_what_is_taken_never_passes_bound_and_reserve(bound: int, steps: list[tuple[str, int]]) -> None:
    """A caller that takes only what there is room for, and glances only while it may, stays within both."""
    ledger = OffsetLedger()
    gate = Intake(Bounds(records=bound, rows=10_000, size=10_000), ledger, POLL)
    held: list[Place] = []
    offset = glanced = 0  # records that came since there was room, or since fetching went on
    is_paused = False
    for step, many in steps:
        room = gate.room()
        assert 0 <= room <= POLL
        assert (room == 0) == gate.is_full
        coming = min(room, many) if step == "take" else int(step == "glance" and not room and not gate.should_pause())
        if coming:
            held += taken(ledger, *map(record, range(offset, offset + coming)), rows=1, size=1)
            offset += coming
            gate.took(coming, coming, coming)
        if step == "glance" and not room:
            gate.took_from_reserve(coming)
            glanced += coming
        elif room:
            glanced = 0
        if step == "settle":
            settled(ledger, *held[:many])
            held = held[many:]
        was_paused = is_paused
        is_paused = gate.should_pause()
        met("the bound is reached", is_so=ledger.records >= bound)
        met("the reserve is used", is_so=ledger.records > bound)
        met("fetching pauses", is_so=is_paused and not was_paused)
        met("fetching goes on before all is settled", is_so=was_paused and not is_paused and ledger.records > 0)
        assert ledger.records <= bound + RESERVE
        assert is_paused <= (was_paused or glanced == RESERVE)
        assert is_paused >= (was_paused and 2 * ledger.records > bound)
        if was_paused and not is_paused:
            glanced = 0
    settled(ledger, *held)
    assert not gate.should_pause()
    assert gate.room() > 0


# Failures in a row are drawn as a whole: single events hardly ever give enough of them.
FAILURES = st.lists(st.sampled_from(["single", "split"]), min_size=PATIENCE - 1, max_size=PATIENCE + 3)
EVENTS = st.lists(
    st.sampled_from(["single", "split", "success", "ask", "probed"]).map(lambda event: [event])
    | st.tuples(FAILURES, st.integers(0, 3)).map(lambda both: [*both[0], *["ask"] * both[1]])
    | st.just(["ask", "probed"]),
    max_size=12,
).map(lambda parts: [event for part in parts for event in part])


@meeting(
    "a probe", "a probe that clears rejections", "a success while a probe is out", "asked again while a probe is out"
)
@given(EVENTS)
def test_every_rejection_leaves_once_and_only_with_proof(events: list[str]) -> None:
    """No rejection leaves before a success or a probe, none twice, and none stays once the lanes are idle."""
    check = DeviceCheck()
    waiting: list[int] = []
    failures = probes_out = 0
    for number, event in enumerate(events):
        if event == "single":
            waiting.append(number)
            failures += 1
            check.failed(refusal(chunk(number), 0, Code.INTERNAL, "no"))
        elif event == "split":
            failures += 1
            check.failed()
        elif event == "ask":
            wanted = check.wants_probe(is_running=True)
            met("a probe", is_so=wanted)
            met("asked again while a probe is out", is_so=failures >= PATIENCE and probes_out > 0)
            assert wanted == (failures >= PATIENCE and not probes_out)
            probes_out += wanted
        elif event == "success" or probes_out:
            met("a success while a probe is out", is_so=event == "success" and probes_out > 0)
            if event == "probed":
                met("a probe that clears rejections", is_so=bool(waiting))
                check.probed()
                probes_out = 0
            assert [one.rejection.record.offset for one in check.cleared()] == waiting
            waiting, failures = [], 0
    if not probes_out:
        assert check.wants_probe(is_running=False) == (bool(waiting) or failures >= PATIENCE)
