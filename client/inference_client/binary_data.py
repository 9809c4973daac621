"""Reads an answer in the binary-data form: a JSON head with names, types and shapes, then the bytes of each output.

Other programs may write to the topic of answers. So each length that an answer states is checked against the bytes that
came. An answer that contradicts itself raises any of Python's exceptions: it is never read as something shorter.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
import orjson

from inference_client.signature import DTYPES, Array, Result

HEAD_LENGTH = "Inference-Header-Content-Length"
LENGTH = struct.Struct("<I")  # before each string
# Heads in the cache: a model answers in a handful of shapes, some 100 bytes for each output. So many heads take 12 MiB
# at most, once parsed; without a bound in bytes 200 answers kept 1.2 GB (2026-11).
_KNOWN, _LONGEST_KNOWN = 512, 2048


class _Tensor(NamedTuple):
    """An output as the head describes it. It takes `size` bytes after the head."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    size: int


def outputs(value: bytes, head_length: int) -> Result:
    """The outputs of an answer. An answer that cannot be read raises any exception."""
    if not 0 < head_length <= len(value):
        raise ValueError(f"a head of {head_length} bytes is announced, the answer has {len(value)}")
    described = _described if head_length <= _LONGEST_KNOWN else _described.__wrapped__
    found: Result = {}
    at = head_length
    for name, datatype, shape, size in described(value[:head_length]):
        found[name] = _array_of(value, at, datatype, shape, size)
        at += size
    if at != len(value):
        raise ValueError(f"{len(value) - head_length} bytes behind the head, which speaks of {at - head_length}")
    return found


@lru_cache(maxsize=_KNOWN)
def _described(head: bytes) -> Sequence[_Tensor]:
    described = [_tensor(entry) for entry in orjson.loads(head)["outputs"]]
    if len({tensor.name for tensor in described}) < len(described):
        raise ValueError("two outputs have one name")
    return described


def _tensor(entry: Mapping[str, Any]) -> _Tensor:
    name, datatype, shape = entry["name"], entry["datatype"], tuple(entry["shape"])
    size = entry["parameters"]["binary_data_size"]
    are_counts = all(type(number) is int and number >= 0 for number in (*shape, size))
    if not are_counts or (datatype != "BYTES" and size != prod(shape) * np.dtype(DTYPES[datatype]).itemsize):
        raise ValueError(f"output {name}: {size} bytes are no {datatype}{list(shape)}")
    return _Tensor(name, datatype, shape, size)


def _array_of(value: bytes, at: int, datatype: str, shape: tuple[int, ...], size: int) -> Array:
    """A view of the answer, which is read-only; strings are copied one by one."""
    if datatype == "BYTES":
        return np.array(_texts(value, at, at + size), object).reshape(shape)
    return np.frombuffer(value, DTYPES[datatype], prod(shape), at).reshape(shape)


def _texts(value: bytes, at: int, end: int) -> list[str]:
    texts = []
    while at < end:
        (length,) = LENGTH.unpack_from(value, at)
        at += 4 + length
        if at > end:
            raise ValueError(f"a string of {length} bytes ends {at - end} bytes behind its output")
        texts.append(value[at - length : at].decode())
    return texts
