"""The frame of a value: magic byte and schema id, or the GUID in the value or in a header."""

from __future__ import annotations

from uuid import UUID

import pytest

from worker.codecs.records.framing import Frame, frame, frame_of, framed
from worker.core.failures import Reject

GUID = UUID("3a533c8c-57df-4c57-8347-1f6142edccd1")
BY_ID, BY_GUID = frame(7), b"\1" + GUID.bytes


def test_a_value_names_its_schema_by_id_or_guid() -> None:
    """The body begins behind it."""
    assert frame_of(BY_ID + b"body") == Frame(7, 5)
    assert frame_of(BY_GUID + b"body") == Frame(GUID, 17)


def test_a_header_names_the_schema_in_the_place_of_the_value() -> None:
    """It may have the place of a Protobuf message behind the name, as the value has it else."""
    assert frame_of(b"body", BY_GUID) == Frame(GUID, 0)
    assert frame_of(BY_ID + b"body", BY_ID + b"\2\0") == Frame(7, 0, b"\2\0")


@pytest.mark.parametrize("value", [b"", b"\0", BY_ID[:4], BY_GUID[:16], b'{"a":1}', b"\2" * 20])
def test_other_beginnings_are_refused(value: bytes) -> None:
    """The message says which ones are taken, and nothing of the value."""
    with pytest.raises(Reject, match=r"^the value: expected the frame of a schema registry: byte 0 and"):
        frame_of(value)
    with pytest.raises(Reject, match=r"^header __value_schema_id: expected the frame"):
        frame_of(BY_ID, value)


def test_many_values_are_grouped_by_their_frames() -> None:
    """The others are refused one by one."""
    values = [BY_ID + b"a", BY_GUID + b"b", b"{}", BY_ID + b"c", b"", b"d"]

    frames, faults = framed(values, [None, None, None, None, None, BY_ID])

    assert frames == {Frame(7, 5): [0, 3], Frame(GUID, 17): [1], Frame(7, 0): [5]}
    assert sorted(faults) == [2, 4]


def test_values_of_one_schema_have_one_frame() -> None:
    """This is the way of nearly all values."""
    frames, faults = framed([BY_ID + b"a", BY_ID + b"b"])

    assert {key: list(at) for key, at in frames.items()} == {Frame(7, 5): [0, 1]}
    assert not faults
    assert sorted(framed([b"\0", b"\0"]).faults) == [0, 1]
    assert len(framed([BY_ID, frame(8)]).frames) == 2
