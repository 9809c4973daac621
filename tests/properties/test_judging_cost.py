"""Judging a value within its caps takes bounded time and memory, whatever it holds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.judging import (
    IN_JSON,
    IN_PROTOBUF,
    MODELS,
    MOST_BYTES,
    MOST_SECONDS,
    NASTY,
    Case,
    Judges,
    in_head,
    in_json,
    in_protobuf,
)
from tests.kafka.hostile_records import RECORDS, echo, hostile
from tests.models import save
from tests.unit.codecs.builders import AS_JSON
from worker.assembled_model import plain_section
from worker.codecs.records.mapping import RecordMapping
from worker.codecs.wire_contract import MIB
from worker.core.records import Partition, Record
from worker.inference.model_loading import load_as_set
from worker.inference.records.making import record_model
from worker.settings import BatchingSettings, ModelSettings, RecordsSettings

# Units up to here stay within the caps, with the bytes around them.
FULL = MIB - 4096
PARSED = 256_000  # of protobuf, which is always parsed
# CI machines are shared and slower than the promise's machine.
LENIENCY = 4


@pytest.fixture(scope="module")
def judges() -> Iterator[Judges]:
    judges = Judges()
    yield judges
    judges.close()


def expect_cheap(judges: Judges, case: Case) -> None:
    cost = judges.cost(case)
    assert cost.bytes <= MOST_BYTES, f"{cost.bytes / MIB:.0f} MiB, {cost.message}"
    assert cost.seconds <= LENIENCY * MOST_SECONDS, f"{cost.seconds * 1000:.0f} ms, {cost.message}"


@pytest.mark.parametrize("size", [PARSED, FULL])
@pytest.mark.parametrize("name", NASTY)
def test_what_was_found_to_be_worst_is_cheap(judges: Judges, name: str, size: int) -> None:
    """The cases were found by hand, and by a search among mutations."""
    expect_cheap(judges, NASTY[name](size))


@pytest.mark.parametrize("distinct", [b'"%d":0,', b'"%d":{},'])
def test_many_names_are_cheap(judges: Judges, distinct: bytes) -> None:
    """A dictionary of names grows, and is copied each time."""
    names = b"".join(distinct % at for at in range(FULL // (len(distinct) + 4)))

    expect_cheap(judges, Case("plain", [AS_JSON], b'{%b"a":0}' % names))


@pytest.mark.parametrize("number", [b"1" * 10_000 + b".5", b"0." + b"3" * 10_000 + b"e300", b"1e-%b" % (b"9" * 10_000)])
def test_long_numbers_are_cheap(judges: Judges, number: bytes) -> None:
    """Any number of digits is cheap."""
    expect_cheap(judges, in_json("long", "data", number + b",", FULL))


JSON_TOKENS = [
    *"[]{}:,0159-. ",
    *['""', '"', "0.5", "1e300", "true", "null", "\\", "é", "[],", "{},", '"":0,', "5,", '"a",'],
]
UNITS = st.lists(st.sampled_from([token.encode() for token in JSON_TOKENS]), min_size=1, max_size=4).map(b"".join)
JSON_CASES = st.tuples(
    st.sampled_from([in_json, in_head]), st.sampled_from([*MODELS]), st.sampled_from([*IN_JSON]), UNITS
)
FIELDS = st.integers(1, 9).flatmap(lambda number: st.sampled_from([bytes([number << 3 | kind]) for kind in range(6)]))
PIECES = FIELDS | st.sampled_from(
    [b"\0", b"\1", b"\2", b"\x7f", b"\x80", b"\xff", b"ab", b"\x2a\0", b"\x42\0", b"\x18\1"]
)
PROTOBUF_CASES = st.tuples(
    st.just(in_protobuf),
    st.sampled_from([*MODELS]),
    st.sampled_from([*IN_PROTOBUF]),
    st.lists(PIECES, min_size=1, max_size=4).map(b"".join),
)


@settings(max_examples=60)
@given(JSON_CASES | PROTOBUF_CASES, st.sampled_from([PARSED, FULL]))
def test_any_unit_repeated_anywhere_is_cheap(judges: Judges, found: tuple[Any, str, str, bytes], size: int) -> None:
    """This holds in every encoding, for every kind of model."""
    build, name, place, unit = found

    expect_cheap(judges, build(name, place, unit, size))


def test_many_bad_records_of_one_partition_cost_what_each_costs() -> None:
    """They are not read twice."""
    case = NASTY[r"json plain inputs b'[],'"](6_000)
    codecs, good = case.codecs(), Case("plain", [], bytes(12))
    records = [(case if at % 5 else good).record._replace(offset=at) for at in range(64)]
    alone = min(_seconds(lambda: [codecs.read([record]) for record in records]) for _ in range(5))

    together = min(_seconds(lambda: codecs.read(records)) for _ in range(5))

    assert together <= 3 * alone


def test_hostile_records_are_read_while_others_hardly_wait(tmp_path: Path) -> None:
    """All 761 of them at once, 17 MB, take less than others may wait: 35 ms (2026-11)."""
    model, batching = ModelSettings(path=save(echo(), tmp_path), device="cpu"), BatchingSettings()
    records = plain_section(RecordsSettings(**RECORDS))
    mapping = RecordMapping(records, record_model(load_as_set(model, batching), model, batching, records, {}).signature)
    values = list(hostile())
    owners = [Record(Partition("topic", 0), at, b"k", value, (), None) for at, value in enumerate(values)]

    took = min(_seconds(lambda: mapping.read(values, owners)) for _ in range(3))

    assert took <= LENIENCY * MOST_SECONDS


def _seconds(act: Any) -> float:
    began = time.process_time()
    act()
    return time.process_time() - began
