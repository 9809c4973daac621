"""Hostile values among right ones, through the real codec and the whole loop, in every encoding."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.builders import NONSENSE, POISON, SHORT, World
from tests.chunks import P0, floats, spec
from tests.judging import field
from worker.codecs.encodings.oip_protobuf import _InferRequest, read_tensors
from worker.codecs.wire_contract import HEAD_LENGTH, JSON, OCTETS, PROTOBUF, Wire
from worker.core.batching.batcher import BatchPolicy
from worker.core.records import Headers, Message, Record
from worker.core.tensors.buckets import Axis, Spot
from worker.core.tensors.signature import Signature
from worker.loop.conduct import Conduct

COUNT = 64
MIDDLE = 21
WIRE = Wire("responses", "scorers", dead_letter_topic="dead-letters", max_answer_bytes=1000, max_request_bytes=3000)
# The values of several polls share a batch, and those of one poll are in several.
POLICY = BatchPolicy(max_rows=24, max_bytes=1 << 20, linger=0.005)

Written = tuple[bytes, Headers]  # a value and its headers


# Right ones: some rows of one float


def in_rows(*numbers: float) -> Written:
    return floats(*numbers), [("content-type", OCTETS.encode())]


def in_json(*numbers: float, **more: Any) -> Written:
    entry = {"name": "x", "shape": [len(numbers), 1], "datatype": "FP32", "data": numbers, **more}
    return json.dumps({"inputs": [entry]}).encode(), [("content-type", JSON.encode())]


def in_binary(*numbers: float, **more: Any) -> Written:
    size = {"binary_data_size": 4 * len(numbers)}
    entry = {"name": "x", "shape": [len(numbers), 1], "datatype": "FP32", "parameters": size, **more}
    return with_head(json.dumps({"inputs": [entry]}).encode(), floats(*numbers))


def with_head(head: bytes, tail: bytes) -> Written:
    return head + tail, [("content-type", OCTETS.encode()), (HEAD_LENGTH, b"%d" % len(head))]


def in_protobuf(*numbers: float, name: str = "x", shape: Sequence[int] | None = None) -> Written:
    message = _InferRequest(raw_input_contents=[floats(*numbers)])
    message.inputs.add(name=name, datatype="FP32", shape=shape or [len(numbers), 1])
    return message.SerializeToString(), [("content-type", PROTOBUF.encode())]


WRITE: Mapping[str, Callable[..., Written]] = {
    "rows": in_rows,
    "json": in_json,
    "binary": in_binary,
    "protobuf": in_protobuf,
}


def numbers_of(offset: int) -> list[float]:
    """One, two or three rows that no other record has."""
    return [10.0 * offset + row for row in range(1 + offset % 3)]


# Or one row of up to 13, in batches that are padded

RAGGED = Signature(
    "m",
    "1",
    (spec(dims=(None,)),),
    (spec("y", dims=(None,)),),
    axes=(Axis("input x axis 1", (4, 8, 16), {Spot(0, 0): 0.0}, (Spot(0, 0),)),),
)


def long_numbers_of(offset: int) -> list[float]:
    """One row of its own length, whose numbers no other record has."""
    return [100.0 * offset + at for at in range(1 + 5 * offset % 13)]


# Hostile ones


def changed(write: Callable[..., Written], change: Callable[[bytes], bytes | None]) -> tuple[bytes | None, Headers]:
    value, headers = write(1.0, 2.0)
    return change(value), headers


def hostile_in(form: str) -> dict[str, tuple[bytes | None, Headers]]:
    """Values that get no result: they say no request, or the model has none for them."""
    write = WRITE[form]
    found: dict[str, tuple[bytes | None, Headers]] = {
        "nothing": changed(write, lambda _: None),
        "no bytes": changed(write, lambda _: b""),
        "a byte less": changed(write, lambda value: value[:-1]),
        "a byte more": changed(write, lambda value: value + b"!"),
        "junk": changed(write, lambda _: b"\xff\x00" * 100 + b"!"),
        "far too much": changed(write, lambda value: value * 1000),
        "a file": changed(write, lambda _: b"\x93NUMPY\1\0"),
        "an odd header": (write(1.0)[0], [*write(1.0)[1], ("timeout-ms", b"soon")]),
        "the run fails": write(POISON, 1.0),
        "the run loses a row": write(1.0, SHORT),
        "the output is NaN": write(NONSENSE),
        "an answer that is too large": (write(*[1.1] * 300)[0], [*write(*[1.1] * 300)[1], ("accept", JSON.encode())]),
    }
    if form != "json":
        found["the input is NaN"] = write(1.0, math.nan)
    if form != "rows":
        found["an unknown input"] = write(1.0, name="z")
        found["a shape of more"] = write(1.0, 2.0, shape=[3, 1])
        found["a shape of less"] = write(1.0, 2.0, shape=[1, 1])
        found["a huge shape"] = write(1.0, shape=[2**62, 1])
    if form == "json":
        found["a text for a number"] = write(1.0, data=["1"])
        found["a number too large"] = write(1.0, data=[1e39])
        found["deep"] = changed(write, lambda _: b"[" * 1500)
        found["an id of no text"] = changed(write, lambda value: value[:-1] + b', "id": 7}')
    if form == "binary":
        found["a head beyond the end"] = (b'{"inputs":', [*in_rows()[1], (HEAD_LENGTH, b"999")])
        found["a head of no JSON"] = with_head(b"[" * 50, floats(1.0))
        found["a size of its own"] = write(1.0, parameters={"binary_data_size": 8})
    if form == "protobuf":
        found["many empty inputs"] = changed(write, lambda _: b"\x2a\0" * 1500)
        found["the tensor twice"] = changed(write, lambda value: value + field(7, floats(1.0)))
        found["an id of no text"] = changed(write, lambda value: value + field(3, b"\xff"))
    return found


HOSTILE = {form: hostile_in(form) for form in WRITE}
HOSTILE["mixed"] = {f"{form}: {why}": given for form in WRITE for why, given in HOSTILE[form].items()}
ONE = [(form, why) for form in WRITE for why in HOSTILE[form]]


def serve(form: str, hostile: Mapping[int, tuple[bytes | None, Headers]], **options: Any) -> World:
    """A worker that has served right records, and at these offsets hostile ones."""
    wire = replace(WIRE, has_state=options.get("has_state", False))
    world = World(wire=wire, policy=POLICY, chunk=40, **options).start(P0)
    writers = list(WRITE.values()) if form == "mixed" else [WRITE[form]]
    for at in range(COUNT):
        write = writers[at % len(writers)]
        if at in hostile:
            value, headers = hostile[at]
        elif world.served is RAGGED:
            value, headers = write(*long_numbers_of(at), shape=[1, len(long_numbers_of(at))])
        else:
            value, headers = write(*numbers_of(at))
        world.broker.append(Record(P0, at, b"k%d" % at, value, headers, None))
    world.turn_for(30.0)
    return world


def expect_each_answered(world: World, hostile: Mapping[int, tuple[bytes | None, Headers]]) -> None:
    """Fail the test unless each has one answer, in order: an error if it is hostile, else its own result."""
    answers = [answer for answer in world.broker.answers if answer.topic == "responses"]
    assert world.answered() == [f"requests/0/{at}" for at in range(COUNT)]
    assert world.answered("error") == [f"requests/0/{at}" for at in sorted(hostile)]
    assert [answer.key for answer in answers] == [b"k%d" % at for at in range(COUNT)]
    for at, answer in enumerate(answers):
        if at not in hostile:
            numbers = np.array(long_numbers_of(at) if world.served is RAGGED else numbers_of(at))
            assert numbers_in(answer) == (numbers.cumsum() if world.has_state else 2 * numbers).tolist(), at
    letters = [letter for letter in world.broker.answers if letter.topic == "dead-letters"]
    assert [letter.value for letter in letters] == [hostile[at][0] for at in sorted(hostile)]
    assert [rejection.record.offset for rejection in sorted(world.events.rejections)] == sorted(hostile)
    assert world.broker.committed == {P0: COUNT}
    assert (world.ledger.records, world.ledger.rows, world.ledger.size) == (0, 0, 0)


def numbers_in(answer: Message) -> list[float]:
    """The result, as a reader of its form sees it."""
    headers, value = dict(answer.headers), answer.value or b""
    if headers["content-type"] == JSON.encode():
        return list(json.loads(value)["outputs"][0]["data"])
    if headers["content-type"] == PROTOBUF.encode():
        ((_, _, _, raw),) = read_tensors(value, "outputs")[1]
        assert isinstance(raw, bytes)
        value = raw
    numbers: list[float] = np.frombuffer(value[int(headers.get(HEAD_LENGTH) or 0) :], "<f4").tolist()
    return numbers


@pytest.mark.parametrize(("form", "why"), ONE)
def test_a_hostile_value_costs_its_neighbours_nothing(form: str, why: str) -> None:
    """It is in the middle of a chunk, and gets its own error, once."""
    hostile = {MIDDLE: HOSTILE[form][why]}

    world = serve(form, hostile)

    expect_each_answered(world, hostile)


@pytest.mark.parametrize("exactly_once", [False, True], ids=["at least once", "exactly once"])
@pytest.mark.parametrize("has_state", [False, True], ids=["without state", "with state"])
@pytest.mark.parametrize("every", [10, 2, 1], ids=["one in ten", "every other", "all"])
@pytest.mark.parametrize("form", HOSTILE)
def test_each_of_many_hostile_values_is_answered_once(
    form: str, every: int, *, has_state: bool, exactly_once: bool
) -> None:
    """They differ in what is wrong with them, and the records between them have their own results."""
    ways, dice = list(HOSTILE[form].values()), random.Random(every)
    hostile = {at: dice.choice(ways) for at in range(every - 1, COUNT, every)}

    world = serve(form, hostile, exactly_once=exactly_once, has_state=has_state)

    expect_each_answered(world, hostile)


@pytest.mark.parametrize("every", [COUNT, 10, 2], ids=["the last", "one in ten", "every other"])
@pytest.mark.parametrize("form", ["json", "binary", "protobuf"])
@pytest.mark.parametrize("lanes", [1, 2])
def test_texts_of_any_length_have_answers_of_their_own_length(form: str, every: int, lanes: int) -> None:
    """They part into the batches of three buckets, and leave in their order, whatever is between them."""
    ways, dice = list(HOSTILE[form].values()), random.Random(every)
    hostile = {at: dice.choice(ways) for at in range(every - 1, COUNT, every)}

    world = serve(form, hostile, served=RAGGED, conduct=Conduct(lanes=lanes, inflight_batches=lanes + 1))

    expect_each_answered(world, hostile)
    assert {batch.shapes for batch in world.lanes.ran} >= {((4,),), ((8,),), ((16,),)}
