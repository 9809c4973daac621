"""An answer in the binary-data form that is at odds with itself is an error, and never read as something shorter."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inference_client import binary_data
from inference_client.binary_data import HEAD_LENGTH
from inference_client.encoding import Encoder
from inference_client.errors import Internal


def binary(*entries: tuple[str, str, Any, Any], tail: bytes, head_length: int | None = None) -> Any:
    """What the client reads in an answer of these outputs: name, datatype, shape and size of each."""
    words = ("name", "datatype", "shape")
    described = [{**dict(zip(words, e, strict=False)), "parameters": {"binary_data_size": e[3]}} for e in entries]
    head = json.dumps({"outputs": described}).encode()
    length = len(head) if head_length is None else head_length
    return Encoder(None).decode({"status": b"ok", HEAD_LENGTH: b"%d" % length}, head + tail)


@pytest.mark.parametrize(
    ("entries", "tail"),
    [
        ([("s", "BYTES", [1], 4)], b"\xff\xff\xff\x7f"),
        ([("s", "BYTES", [1], 6)], b"\x03\0\0\0ab"),
        ([("s", "BYTES", [1], 6), ("n", "INT8", [2], 2)], b"\x04\0\0\0abcd"),
        ([("s", "BYTES", [2], 5)], b"\x01\0\0\0a"),
        ([("y", "FP32", [1], 5)], b"12345"),
        ([("y", "FP32", [-1], 8)], b"12345678"),
        ([("y", "FP32", [2], 4)], b"1234"),
        ([("y", "INT8", [True], 1)], b"1"),
        ([("a", "INT8", [4], 4), ("b", "BYTES", [0], -2)], b"12"),
        ([("y", "INT8", [1], 2**64 - 1)], b"1"),
        ([("y", "INT8", [1], 1)], b"12"),
        ([("a", "INT8", [1], 1), ("a", "INT8", [1], 1)], b"12"),
    ],
)
def test_an_answer_at_odds_with_itself_is_not_read(entries: list[tuple[str, str, Any, Any]], tail: bytes) -> None:
    """A string that is longer than what came was the empty one, and of two outputs with one name the last was told."""
    assert isinstance(binary(*entries, tail=tail), Internal)


@pytest.mark.parametrize("length", [-1, 0, 10_000])
def test_a_head_as_long_as_no_answer_is_not_read(length: int) -> None:
    """Python would count from the end."""
    assert "a head of" in str(binary(("y", "INT8", [1], 1), tail=b"1", head_length=length))


def test_heads_that_are_remembered_are_bounded_in_bytes() -> None:
    """What others write into them is as long as they like: 200 long heads kept 1.2 GB."""
    keeps = binary_data._described
    keeps.cache_clear()

    for number in range(3):
        found = binary((f"{number}{'n' * binary_data._LONGEST_KNOWN}", "INT8", [1], 1), tail=b"1")
        assert isinstance(found, dict)
        assert isinstance(binary(("y", "INT8", [number], number), tail=b"1" * number), dict)

    assert keeps.cache_info().currsize == 3
    assert binary_data._KNOWN * binary_data._LONGEST_KNOWN <= 1024 * 1024
