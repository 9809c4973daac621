"""What a .npy or .npz must be, told before the first inference; and its rows as the wire has them."""

from __future__ import annotations

import io
import os
import random
import struct
from pathlib import Path

import numpy as np
import pytest

from tests.builders import signature, spec
from worker.core.failures import BadConfiguration, Incomplete
from worker.core.records import Array
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec
from worker.tools.score.files.arrays import Arrays

ROWS = np.arange(12, dtype="<f4").reshape(4, 3)
ONE = signature(spec("x", "FP32", (3,)))
TWO = signature(spec("a", "FP32", (3,)), spec("b", "INT64", (None,)))


def saved(folder: Path, array: Array, name: str = "rows.npy") -> Path:
    np.save(folder / name, array)
    return folder / name


def refusal(path: Path, model: Signature = ONE) -> str:
    with pytest.raises(BadConfiguration) as refused:
        Arrays(path, model)
    return str(refused.value)


def test_rows_come_as_the_wire_has_them(tmp_path: Path) -> None:
    """Little-endian, row after row, from any row on."""
    with Arrays(saved(tmp_path, ROWS), ONE) as arrays:
        read = arrays.columns[0].read(1, 2)

    assert arrays.rows == 4
    assert arrays.row_bytes == 12
    assert read == ROWS[1:3].tobytes()


def test_the_other_byte_order_is_turned(tmp_path: Path) -> None:
    """It is the same number."""
    with Arrays(saved(tmp_path, ROWS.astype(">f4")), ONE) as arrays:
        assert arrays.columns[0].read(0, 4) == ROWS.tobytes()


def test_text_comes_as_strings_behind_their_lengths(tmp_path: Path) -> None:
    """numpy's text of fixed width is four bytes a character; the wire's is UTF-8."""
    array = np.array([["a", "öl"], ["", "ccc"]])
    with Arrays(saved(tmp_path, array), signature(spec("t", "BYTES", (2,)))) as arrays:
        read = arrays.columns[0].read(0, 2)

    assert read == b"".join(struct.pack("<I", len(t)) + t for t in (b"a", "öl".encode(), b"", b"ccc"))


def test_every_array_of_an_npz_is_read_in_its_place(tmp_path: Path) -> None:
    """One per input, by name, in any order; an open dimension is the file's."""
    b = np.arange(8, dtype="<i8").reshape(4, 2)
    np.savez(tmp_path / "rows.npz", b=b, a=ROWS)

    with Arrays(tmp_path / "rows.npz", TWO) as arrays:
        read = [column.read(2, 2) for column in arrays.columns]

    assert read == [ROWS[2:].tobytes(), b[2:].tobytes()]
    assert arrays.columns[1].dims == (2,)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (ROWS.astype("f8"), "float64 of shape [4, 3]; the model takes x FP32[batch, 3]: save array.astype('float32')"),
        (ROWS[:, :2].copy(), "float32 of shape [4, 2]; the model takes x FP32[batch, 3]"),
        (ROWS.reshape(-1), "of shape [12]; the model takes x FP32[batch, 3]: save array.reshape(-1, 3)"),
        (
            ROWS[0],
            "the model takes x FP32[batch, 3], and this is one row without the batch's axis: save array[np.newax",
        ),
        (np.float32(1), "float32 of shape []; the model takes"),
        (np.asfortranarray(ROWS), "in Fortran order, column by column: save np.ascontiguousarray(array)"),
        (ROWS[:0], "float32 of shape [0, 3]: there is nothing to score"),
        (np.array([[1, "x", None]], object), "holds Python objects, which are pickled and never read"),
    ],
)
def test_what_a_model_cannot_be_asked_is_told_with_the_cure(tmp_path: Path, array: Array, words: str) -> None:
    """One sentence, before the first inference."""
    assert words in refusal(saved(tmp_path, array))


@pytest.mark.parametrize("shape", [(7,), (0,), (2, 6), (4, 3, 1)])
def test_no_cure_is_guessed_for_numbers_that_make_up_no_rows(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """Reshaped at a guess they would be scored as what they are not."""
    assert refusal(saved(tmp_path, np.zeros(shape, "f4"))).endswith("the model takes x FP32[batch, 3]")


def test_numbers_without_a_batch_axis_of_their_own_are_told(tmp_path: Path) -> None:
    """Of a row that is one number, too; where an axis is open, rows in one line cannot be told apart."""
    assert refusal(saved(tmp_path, np.array(1, "f4")), signature(spec("x", "FP32", ()))).endswith(
        "save array[np.newaxis]"
    )
    assert refusal(saved(tmp_path, ROWS[0]), signature(spec("x", "FP32", (None, 3)))).endswith("x FP32[batch, ?, 3]")


def test_a_file_that_was_cut_off_is_told(tmp_path: Path) -> None:
    """Its header promises more than there is."""
    path = saved(tmp_path, ROWS)
    os.truncate(path, path.stat().st_size - 1)

    assert "but only 3 rows of it" in refusal(path)


@pytest.mark.parametrize("content", [b"", b"hello", b"\x93NUMPY\x09\x00", b"\x93NUMPY\x01\x00\x10\x00{'descr'"])
def test_what_is_no_array_is_told(tmp_path: Path, content: bytes) -> None:
    """Whatever its name says."""
    (tmp_path / "rows.npy").write_bytes(content)

    assert "rows.npy is no array in numpy's format" in refusal(tmp_path / "rows.npy")


HEADER = "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 3), }"


@pytest.mark.parametrize(
    "header",
    [
        HEADER.replace("}", ""),
        HEADER.replace("4", "04"),
        HEADER.replace("'<f4'", "()"),
        HEADER.replace("}", "7: 7}"),
        "{[]: 1}",
        "-" * 9000 + "1",
        "",
    ],
)
def test_a_header_that_cannot_be_parsed_is_told(tmp_path: Path, header: str) -> None:
    """It is an expression in Python, and fails in as many ways; numpy passes them on."""
    raw = header.encode()
    (tmp_path / "rows.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(raw)) + raw + ROWS.tobytes())

    assert "rows.npy is no array in numpy's format" in refusal(tmp_path / "rows.npy")


def test_a_damaged_archive_is_told(tmp_path: Path) -> None:
    """Its directory is found and names places where there is nothing."""
    np.savez(tmp_path / "whole.npz", a=ROWS)
    whole = (tmp_path / "whole.npz").read_bytes()
    for number, damaged in enumerate([whole[200:], whole.replace(b"PK\x01\x02", b"PK\x01\x03"), whole[-22:]]):
        path = tmp_path / f"{number}.npz"
        path.write_bytes(damaged)

        assert ".npz" in refusal(path)


def mutated(whole: bytes, chance: random.Random) -> bytes:
    """One to four bytes changed, put in or taken out, or the end cut off."""
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
@pytest.mark.parametrize("name", ["numbers.npy", "text.npy", "two.npz"])
def test_however_a_file_is_damaged_it_is_one_sentence(tmp_path: Path, name: str) -> None:
    """Or it is read, where the damage lies in a number."""
    np.save(tmp_path / "numbers.npy", ROWS)
    np.save(tmp_path / "text.npy", np.array([["a", "bc"]] * 4))
    np.savez(tmp_path / "two.npz", a=ROWS, b=np.zeros((4, 2), "<i8"))
    models = {"numbers.npy": ONE, "text.npy": signature(spec("t", "BYTES", (2,))), "two.npz": TWO}
    whole, path, chance = (tmp_path / name).read_bytes(), tmp_path / f"damaged-{name}", random.Random(name)
    told: list[str] = []

    for _ in range(1000):
        path.write_bytes(mutated(whole, chance))
        try:
            with Arrays(path, models[name]) as arrays:
                for column in arrays.columns:
                    column.read(0, arrays.rows)
        except (BadConfiguration, Incomplete) as error:
            told.append(str(error))

    assert len(told) > 100
    assert all(len(sentence.splitlines()) == 1 for sentence in told)


@pytest.mark.parametrize("code", [0xD800, 0x110000])
def test_text_that_is_none_is_told(tmp_path: Path, code: int) -> None:
    """Half a pair of UTF-16, or a number beyond Unicode."""
    raw = saved(tmp_path, np.array([["ab"], ["cd"]])).read_bytes()
    (tmp_path / "rows.npy").write_bytes(raw.replace(struct.pack("<I", ord("d")), struct.pack("<I", code)))

    with Arrays(tmp_path / "rows.npy", signature(spec("t", "BYTES", (1,)))) as arrays:
        assert arrays.columns[0].read(0, 1)
        with pytest.raises(Incomplete, match="rows 1 to 1, counted from 0, hold characters that Unicode has not"):
            arrays.columns[0].read(1, 1)


def test_text_without_room_for_a_character_is_nothing(tmp_path: Path) -> None:
    """numpy knows texts of width 0."""
    raw = saved(tmp_path, np.array([["a"]])).read_bytes()
    (tmp_path / "rows.npy").write_bytes(raw.replace(b"<U1", b"<U0"))

    assert "there is nothing to score" in refusal(tmp_path / "rows.npy", signature(spec("t", "BYTES", (1,))))


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    """With the reason of the operating system."""
    assert "rows.npy: cannot be read: No such file" in refusal(tmp_path / "rows.npy")


def test_an_npz_must_hold_the_inputs_and_nothing_else(tmp_path: Path) -> None:
    """A name that is nobody's is more likely a mistake than a label."""
    np.savez(tmp_path / "less.npz", a=ROWS)
    np.savez(tmp_path / "more.npz", a=ROWS, b=ROWS.astype("<i8"), c=ROWS)

    assert "holds a; the model takes a FP32[batch, 3], b INT64[batch, ?]" in refusal(tmp_path / "less.npz", TWO)
    assert "holds a, b, c; the model takes" in refusal(tmp_path / "more.npz", TWO)


def test_what_has_a_default_may_be_missing(tmp_path: Path) -> None:
    """One array is enough where one input is required; rows are plain when nothing else is there."""
    model = signature(TensorSpec("scale", "FP32", (), (), 1.0), spec("x", "FP32", (3,)))
    np.savez(tmp_path / "both.npz", x=ROWS, scale=ROWS[:, 0])
    np.savez(tmp_path / "less.npz", x=ROWS)

    with Arrays(saved(tmp_path, ROWS), model) as one, Arrays(tmp_path / "both.npz", model) as both:
        assert ([column.spec.name for column in one.columns], one.are_plain) == (["x"], True)
        assert ([column.spec.name for column in both.columns], both.are_plain) == (["scale", "x"], False)
    with Arrays(tmp_path / "less.npz", model) as less:
        assert less.are_plain


def test_the_arrays_of_an_npz_must_have_equal_rows(tmp_path: Path) -> None:
    """A row is a row of each."""
    np.savez(tmp_path / "rows.npz", a=ROWS, b=np.zeros((3, 1), "<i8"))

    assert "the same number of rows, got a: 4, b: 3" in refusal(tmp_path / "rows.npz", TWO)


def test_a_compressed_npz_is_refused(tmp_path: Path) -> None:
    """No row of it can be found without unpacking all before it."""
    np.savez_compressed(tmp_path / "rows.npz", x=ROWS)

    assert "x is compressed; save it with np.savez" in refusal(tmp_path / "rows.npz")


def test_one_array_is_no_input_for_two(tmp_path: Path) -> None:
    """The cure names the inputs."""
    assert "np.savez(FILE, a=..., b=...)" in refusal(saved(tmp_path, ROWS), TWO)


def test_a_file_that_shrinks_while_it_is_read_is_told(tmp_path: Path) -> None:
    """A mapped one would end the process."""
    path = saved(tmp_path, ROWS)
    with Arrays(path, ONE) as arrays:
        os.truncate(path, 140)

        with pytest.raises(Incomplete, match="has become shorter while it was read: it ends before byte 176"):
            arrays.columns[0].read(0, 4)


def test_a_header_of_the_second_version_is_read(tmp_path: Path) -> None:
    """numpy writes it where a header is long."""
    content = io.BytesIO()
    np.lib.format.write_array(content, ROWS, version=(2, 0))
    (tmp_path / "rows.npy").write_bytes(content.getvalue())

    with Arrays(tmp_path / "rows.npy", ONE) as arrays:
        assert arrays.columns[0].read(3, 1) == ROWS[3].tobytes()
