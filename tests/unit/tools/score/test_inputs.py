"""Array files checked against a model before the first inference, and lines of files and pipes as records."""

from __future__ import annotations

import os
import random
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.chunks import signature, spec
from worker.codecs.codec import Codec
from worker.codecs.wire_contract import OCTETS, Wire
from worker.core.chunk import Chunk
from worker.core.failures import BadConfiguration, Incomplete
from worker.core.records import Array, Partition, Record
from worker.core.tensors.signature import Signature
from worker.tools.lines import lines
from worker.tools.score.inputs import LINE_HEADERS, RowFile, Rows, line_portions, plain

ROWS = np.arange(12, dtype="<f4").reshape(4, 3)
ONE = signature(spec("x", "FP32", (3,)))
TWO = signature(spec("a", "FP32", (3,)), spec("b", "INT64", (None,)))


def saved(folder: Path, array: Array, name: str = "rows.npy") -> Path:
    np.save(folder / name, array)
    return folder / name


def rows_of(path: Path, model: Signature, at_once: int = 3) -> list[Rows]:
    return list(RowFile(path, "rows", model, OCTETS).portions(lambda: at_once))


def refusal(path: Path, model: Signature = ONE) -> str:
    with pytest.raises(BadConfiguration) as refused:
        rows_of(path, model)
    return str(refused.value)


def read_as(rows: Rows, model: Signature) -> Chunk:
    chunks, rejections, _ = Codec([model], Wire("answers", "g"), tell=lambda _: None).read([rows.record()])
    assert not rejections
    return chunks[0]


@pytest.mark.parametrize("array", [ROWS, ROWS.astype(">f4"), np.asfortranarray(ROWS)])
def test_rows_come_as_the_wire_has_them(tmp_path: Path, array: Array) -> None:
    """They come little-endian, row after row, portion after portion, whatever the file's layout is."""
    first, last = rows_of(saved(tmp_path, array), ONE)

    request = read_as(first, ONE)
    assert (first.number, last.number, list(request.rows)) == (0, 3, [3])
    assert [list(column) for column in request.tensors] == [[ROWS[:3].tobytes()]]
    assert np.array_equal(last.arrays[0], ROWS[3:])


def test_every_array_of_an_npz_is_an_input(tmp_path: Path) -> None:
    """Names match, in any order. The file decides an open dimension, and may be compressed."""
    b = np.arange(8, dtype="<i8").reshape(4, 2)
    np.savez(tmp_path / "stored.npz", b=b, a=ROWS)
    np.savez_compressed(tmp_path / "small.npz", b=b, a=ROWS)

    for name in ("stored.npz", "small.npz"):
        request = read_as(rows_of(tmp_path / name, TWO, 4)[0], TWO)
        assert [list(column) for column in request.tensors] == [[ROWS.tobytes()], [b.tobytes()]]
        assert list(request.shapes) == [((3,), (2,))]


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (ROWS.astype("f8"), "float64 of shape [4, 3]; the model takes x FP32[batch, 3]: save array.astype('float32')"),
        (ROWS.reshape(-1), "of shape [12]; the model takes x FP32[batch, 3]"),
        (ROWS[0], "with the batch's axis first"),
        (ROWS[:0], "there is nothing to score"),
        (np.array([[1, "x", None]], object), "cannot be read as an array file"),
    ],
)
def test_rows_that_the_model_does_not_take_are_refused_with_the_cure(tmp_path: Path, array: Array, words: str) -> None:
    """The refusal is one sentence, before the first inference."""
    assert words in refusal(saved(tmp_path, array))


def test_an_npz_must_hold_the_inputs_and_nothing_else(tmp_path: Path) -> None:
    """Row counts must be equal, and one array is not enough for two inputs."""
    np.savez(tmp_path / "less.npz", a=ROWS)
    np.savez(tmp_path / "more.npz", a=ROWS, b=ROWS.astype("<i8"), c=ROWS)
    np.savez(tmp_path / "uneven.npz", a=ROWS, b=np.zeros((3, 1), "<i8"))

    assert "holds a; the model takes a FP32[batch, 3], b INT64[batch, ?]" in refusal(tmp_path / "less.npz", TWO)
    assert "holds a, b, c; the model takes" in refusal(tmp_path / "more.npz", TWO)
    assert "the same number of rows, got a: 4, b: 3" in refusal(tmp_path / "uneven.npz", TWO)
    assert "save those arrays by name in a .npz" in refusal(saved(tmp_path, ROWS), TWO)


def test_a_file_that_ends_too_soon_is_told(tmp_path: Path) -> None:
    """It may be short from the start, or shrink while it is read."""
    path = saved(tmp_path, ROWS)
    file = RowFile(path, "rows", ONE, OCTETS)
    os.truncate(path, path.stat().st_size - 1)

    with pytest.raises(Incomplete, match="cannot be read to its end"):
        list(file.portions(lambda: 4))
    assert "rows.npy: cannot be read as an array file" in refusal(path)


def mutated(whole: bytes, chance: random.Random) -> bytes:
    """The file with one to four bytes changed, inserted or removed, or with its end cut off."""
    content = bytearray(whole)
    for _ in range(chance.choice([1, 1, 2, 4])):
        at, byte = chance.randrange(len(content)), chance.choice([0, 255, *b"(){'0,", chance.randrange(256)])
        match chance.choice(["change", "change", "insert", "remove", "cut"]):
            case "change":
                content[at] = byte
            case "insert":
                content.insert(at, byte)
            case "remove":
                del content[at : at + 4]
            case "cut":
                del content[at + 1 :]
        content = content or bytearray(1)
    return bytes(content)


@pytest.mark.filterwarnings("ignore:Reading `.npy`:UserWarning")  # numpy takes a stray L for Python 2
@pytest.mark.parametrize("name", ["numbers.npy", "two.npz"])
def test_however_a_file_is_damaged_it_is_one_sentence(tmp_path: Path, name: str) -> None:
    """If the damage lies in a number, the file is read."""
    np.save(tmp_path / "numbers.npy", ROWS)
    np.savez(tmp_path / "two.npz", a=ROWS, b=np.zeros((4, 2), "<i8"))
    models = {"numbers.npy": ONE, "two.npz": TWO}
    whole, path, chance = (tmp_path / name).read_bytes(), tmp_path / f"damaged-{name}", random.Random(name)
    told: list[str] = []

    for _ in range(500):
        path.write_bytes(mutated(whole, chance))
        try:
            rows_of(path, models[name])
        except BadConfiguration as error:
            told.append(str(error))

    assert len(told) > 50
    assert all(len(sentence.splitlines()) == 1 for sentence in told)


def read(folder: Path, content: bytes) -> list[Record]:
    path = folder / "requests.jsonl"
    path.write_bytes(content)
    with path.open("rb") as file:
        read = partial(plain, Partition(path.name, 0), LINE_HEADERS)
        portions = line_portions(lines(file.fileno(), path.name), read, 100, lambda: 2)
        return [record for portion in portions for record in portion]


def test_a_line_too_long_is_refused_as_the_worker_refuses_it(tmp_path: Path) -> None:
    """The words are the worker's; the next line is read as usual."""
    long = b"x" * 1_000_000
    codec = Codec([signature()], Wire("answers", "g", max_request_bytes=100), tell=lambda _: None)
    records = read(tmp_path, b"a\n" + long + b"\nb\n")

    _, ((_, would_be),), _ = codec.read([records[1]._replace(value=long, unreadable=None)])
    assert [r.value for r in records] == [b"a", b"", b"b"]
    assert records[1].unreadable == would_be.message
