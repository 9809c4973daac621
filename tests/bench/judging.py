"""What it costs to judge a nasty value: time and memory by the byte, beside what is promised, and a search for worse.

    python -m tests.bench.judging                    # a table: each encoding and nasty shape
    python -m tests.bench.judging search [SECONDS]   # the worst that mutation finds, over all codecs and models

Times are the CPU's, the least of several; memory is the process's own peak above what it had before, from Linux's
`/proc`, since parsers in C are seen by no Python tool. Garbage is collected as often as in a worker.
"""

from __future__ import annotations

import ctypes
import gc
import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.judging import IN_JSON, IN_PROTOBUF, MODELS, NASTY, Case, in_head, in_json, in_protobuf, judge
from tests.judging import most_bytes as allowed_bytes
from tests.judging import most_seconds as allowed_seconds
from worker.app import GC_THRESHOLDS

SIZES = (2_000, 4_000, 6_000, 16_000, 60_000, 1_000_000)
_LIBC = ctypes.CDLL(None)


class Cost(NamedTuple):
    """What one case took, and the part of the promise that is."""

    case: Case
    seconds: float
    bytes: int
    of_time: float
    of_memory: float

    @property
    def worst(self) -> float:
        return max(self.of_time, self.of_memory)

    def __str__(self) -> str:
        size = len(self.case.value)
        by_byte = f"{self.seconds / size * 1e9:7.1f} ns/B {self.bytes / size:6.1f} B/B"
        return f"{size:9,} B {self.seconds * 1e3:8.2f} ms {by_byte}   {self.of_time:5.0%} {self.of_memory:5.0%}"


def cost(case: Case, repeats: int = 5) -> Cost:
    """Time is the least of so many; memory is measured once."""
    codecs = case.codecs()
    seconds = min(_seconds(codecs, case) for _ in range(repeats))
    gc.collect()
    _LIBC.malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before = _status("VmRSS")
    decoded = judge(codecs, case)
    peak = max(_status("VmHWM") - before, 0)
    return Cost(case, seconds, peak, seconds / allowed_seconds(case), peak / allowed_bytes(case, decoded))


def _seconds(codecs: object, case: Case) -> float:
    began = time.process_time()
    judge(codecs, case)  # type: ignore[arg-type]  # the case's own
    return time.process_time() - began


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024


def table() -> Iterator[tuple[str, Cost]]:
    """Of each nasty shape the size at which it comes closest to what is promised."""
    for name, build in NASTY.items():
        yield name, max((cost(build(size)) for size in SIZES), key=lambda found: found.worst)


# A search: units of a few tokens, repeated somewhere in a request, mutated while that costs more

_JSON_TOKENS = [
    *(b"[", b"]", b"{", b"}", b",", b":", b'"', b'""', b"0", b"1", b"5", b"-", b".", b"e9", b"0.5", b"1e300", b"300"),
    *(b"true", b"null", b" ", b"\n", b"\\", b'\\"', b"\\u0001", b"\\\\", '"é"'.encode(), '"😀"'.encode(), b"\xff"),
    *(
        b"[],",
        b"{},",
        b"[0],",
        b'{"":0},',
        b'"",',
        b'"ab",',
        b"5,",
        b'"":',
        b'"data":[',
        b'"data":[[0],',
        b'"name":"x",',
    ),
    *(
        b'"shape":[1],',
        b'"datatype":"FP32",',
        b'"parameters":{},',
        b'{"name":"y"},',
        b'{"name":"x"},',
        b"1234567890123",
    ),
]
_PROTOBUF_TOKENS = [
    *(bytes([number << 3 | kind]) for number in range(1, 9) for kind in range(6)),
    *(
        b"\0",
        b"\1",
        b"\2",
        b"\5",
        b"\x7f",
        b"\x80",
        b"\xff",
        b"ab",
        b"x",
        b"\x2a\0",
        b"\x22\0",
        b"\x42\0",
        b"\x10\5",
        b"\x85\0",
    ),
    *(b"\x0a\1x", b"\x12\4FP32", b"\x1a\2\1\3", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\1", bytes(4), b"\0\0\0\x3f"),
]
_BUILDERS = {"json": in_json, "head": in_head, "protobuf": in_protobuf}


class Genome(NamedTuple):
    """One case in the search."""

    form: str
    model: str
    place: str
    tokens: tuple[bytes, ...]
    size: int

    @property
    def case(self) -> Case:
        return _BUILDERS[self.form](self.model, self.place, b"".join(self.tokens) or b"0", self.size)

    def mutated(self, rng: random.Random) -> Genome:
        """Another one like it."""
        what = rng.randrange(6)
        tokens = list(self.tokens)
        known = _PROTOBUF_TOKENS if self.form == "protobuf" else _JSON_TOKENS
        if what == 0:
            return self._replace(model=rng.choice(list(MODELS)))
        if what == 1:
            return self._replace(place=rng.choice(_places(self.form)))
        if what == 2:
            return self._replace(size=rng.choice(SIZES[:3]) + rng.randrange(200))
        if what == 3 and tokens:
            tokens.pop(rng.randrange(len(tokens)))
        else:
            tokens.insert(rng.randint(0, len(tokens)), rng.choice(known))
        return self._replace(tokens=tuple(tokens[:12]))


def _places(form: str) -> Sequence[str]:
    return list(IN_PROTOBUF if form == "protobuf" else IN_JSON)


def _anything(rng: random.Random) -> Genome:
    form = rng.choice(list(_BUILDERS))
    known = _PROTOBUF_TOKENS if form == "protobuf" else _JSON_TOKENS
    tokens = tuple(rng.choices(known, k=rng.randint(1, 3)))
    return Genome(form, rng.choice(list(MODELS)), rng.choice(_places(form)), tokens, 8_000)


def search(seconds: float, seed: int) -> list[tuple[Genome, Cost]]:
    """The worst of each form and model, the worst first."""
    rng = random.Random(seed)
    worst: dict[tuple[str, str], tuple[Genome, Cost]] = {}
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        is_new = not worst or rng.random() < 0.2
        genome = _anything(rng) if is_new else rng.choice(list(worst.values()))[0].mutated(rng)
        found = cost(genome.case, repeats=2)
        key = (genome.form, genome.model)
        best = worst[key][1].worst if key in worst else 0.0
        if found.worst > best and (found := cost(genome.case)).worst > best:  # measured again: chance finds a lot
            worst[key] = (genome, found)
    return sorted(worst.values(), key=lambda pair: -pair[1].worst)


def main(arguments: Sequence[str]) -> None:
    """Print either."""
    gc.set_threshold(*GC_THRESHOLDS)
    gc.freeze()
    if arguments[:1] == ["search"]:
        seconds = float(arguments[1]) if len(arguments) > 1 else 60.0
        for genome, found in search(seconds, int(arguments[2]) if len(arguments) > 2 else 1):
            print(f"{found}  {genome.form} {genome.model} {genome.place} {b''.join(genome.tokens)!r}")  # noqa: T201  # its purpose
        return
    for name, found in table():
        print(f"{found}  {name[:90]}", flush=True)  # noqa: T201  # its purpose


if __name__ == "__main__":
    main(sys.argv[1:])
