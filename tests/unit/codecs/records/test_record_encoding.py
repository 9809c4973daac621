"""Record topics go through the codec as requests do: chunks of good records, rejections by index, answers in order."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.unit.codecs.builders import Y
from tests.unit.codecs.records.builders import PAYMENTS, mapping, record, record_codec, served, spec
from worker.codecs.records.extreme_numbers import MOST_EXTREMES
from worker.codecs.records.record_encoding import WHOLE_HOLDS
from worker.core.chunk import Chunk, Prediction
from worker.core.failures import Code
from worker.core.records import Array, Record, Rejection
from worker.core.tensors.buckets import Axis, Spot


def chunk_of(codec: object, *records: Record) -> Chunk:
    reading = codec.read(records)  # type: ignore[attr-defined]
    assert not reading.rejections
    [chunk] = reading.chunks
    assert isinstance(chunk, Chunk)
    return chunk


def outputs(rows: int) -> list[Array]:
    return [np.arange(2 * rows, dtype="<f4").reshape(rows, 2)]


def test_a_record_gives_a_record() -> None:
    """Its key, and what is kept of it; the answer says where it came from."""
    codec = record_codec(served(), mapping(answer={"keep": ["id"]}))
    chunk = chunk_of(codec, record({"x": 1, "id": 7}), record({"x": 2, "id": "b"}, 1))
    first, second = codec.write(Prediction(chunk, outputs(2)))
    assert not isinstance(first, Rejection)
    assert not isinstance(second, Rejection)
    assert (first[1], first[2], second[2]) == (b"k", b'{"id":7,"y":[0.0,1.0]}', b'{"id":"b","y":[2.0,3.0]}')
    assert dict(first[3] or []) == {
        "content-type": b"application/json",
        "status": b"ok",
        "model-version": b"1",
        "source": b"payments/0/0",
    }


def test_headers_of_requests_say_nothing_of_a_record() -> None:
    """A bridge may have copied any; a request's id, its deadline and where the answer goes count as ever."""
    codec = record_codec(served(), mapping())
    foreign = [("content-type", b"text/plain"), ("accept", b"image/png"), ("rows", b"x"), ("datatype", b"?")]
    chunk = chunk_of(codec, record({"x": 1}, headers=[*foreign, ("request-id", b"r"), ("timeout-ms", b"500")]))
    assert (chunk.ids_of(0).request_id, chunk.timeouts and chunk.timeouts[0]) == ("r", (0.5, None))


def test_the_answers_key_may_be_a_field() -> None:
    """Then the record's own key is of no account."""
    codec = record_codec(served(), mapping(key="id"))
    chunk = chunk_of(codec, record({"x": 1, "id": "other"}))
    [answer] = codec.write(Prediction(chunk, outputs(1)))
    assert answer[1] == b"other"


def test_a_wrong_record_is_refused_with_its_path() -> None:
    """Its neighbours are not. The error is JSON, as all of the answers."""
    codec = record_codec(served(), mapping(), dead_letter_topic="dead")
    reading = codec.read([record({"x": 1}), record({"x": "secret"}, 1), record({"x": 2}, 2), record(b"", 3)])
    assert [list(chunk.at) for chunk in reading.chunks] == [[0, 2]]
    (wrong, rejection), (empty, nothing) = reading.rejections
    assert (wrong, rejection.code, rejection.message) == (
        1,
        Code.INVALID_ARGUMENT,
        "x: expected a number, got a text",
    )
    assert (empty, nothing.message) == (3, "expected a record, got an empty value")
    error, letter = codec.messages([rejection])
    assert json.loads(error[2] or b"") == {"error": "x: expected a number, got a text"}
    assert letter[2] == b'{"x": "secret"}'


def test_a_framed_record_names_the_setting_that_reads_it() -> None:
    """The first thing that anyone meets who tries a topic with a registry."""
    [(_, rejection)] = record_codec(served(), mapping()).read([record(b"\0\0\0\0\x07abc")]).rejections
    assert "the schema id 7: set WORKER_RECORDS__ENCODING to registry" in rejection.message


def test_other_kinds_are_passed_over_in_silence() -> None:
    """They are no rejections: nothing answers them, and nothing is dead-lettered."""
    codec = record_codec(served(), mapping(only={"type": ["payment"]}), dead_letter_topic="dead")
    reading = codec.read([record({"type": "login"}), record({"type": "payment", "x": 1}, 1)])
    [(at, passed)] = reading.rejections
    assert (at, passed.is_silent, len(reading.chunks)) == (0, True, 1)
    assert codec.messages([passed]) == []


def test_another_kind_needs_no_key_for_a_state() -> None:
    """It is passed over as ever; one that counts is refused without a key, and with one that is too long."""
    codec = record_codec(served(), mapping(only={"kind": ["a"]}), has_state=True, max_key_bytes=4)
    given = [record({"x": 1, "kind": kind})._replace(key=key) for key in (None, b"12345") for kind in "ab"]

    reading = codec.read(given)

    assert not reading.chunks
    assert [(refused.code, refused.is_silent) for _, refused in reading.rejections] == [
        (Code.INVALID_ARGUMENT, False),
        (Code.INVALID_ARGUMENT, True),
        (Code.RESOURCE_EXHAUSTED, False),
        (Code.INVALID_ARGUMENT, True),
    ]


def test_a_request_id_in_a_record_is_none() -> None:
    """A rejection by headers alone has no id of the body."""
    codec = record_codec(served(), mapping())
    [(_, rejection)] = codec.read([record({"id": "r", "x": 1}, headers=[("deadline", b"soon")])]).rejections
    assert rejection.ids.request_id is None


def test_a_record_may_not_be_larger_than_what_is_parsed() -> None:
    """The limit is that of JSON requests."""
    codec = record_codec(served(), mapping(), max_json_bytes=20)
    reading = codec.read([record({"x": 1, "more": "z" * 20}), record({"x": 1}, 1)])
    [(_, rejection)] = reading.rejections
    assert (rejection.code, len(reading.chunks)) == (Code.RESOURCE_EXHAUSTED, 1)
    assert rejection.message.startswith("the record has 40 bytes, at most 20 are read")


def test_records_of_several_rows_are_answered_by_lists() -> None:
    """One entry for each row; a record with too many rows is refused."""
    signature = served(spec(name="p"), max_rows=2)
    codec = record_codec(signature, mapping(spec(name="p"), rows="items"))
    items = [{"p": 1}, {"p": 2}]
    chunk = chunk_of(codec, record({"items": items}), record({"items": items[:1]}, 1))
    answers = codec.write(Prediction(chunk, outputs(3)))
    assert [answer[2] for answer in answers] == [b'{"y":[[0.0,1.0],[2.0,3.0]]}', b'{"y":[[4.0,5.0]]}']
    [(_, rejection)] = codec.read([record({"items": items + items})]).rejections
    assert rejection.message == "4 rows, at most 2 are taken in one record"


def test_a_whole_record_counts_with_its_objects() -> None:
    """Else records of empty lists, 22 bytes of memory for each of theirs, outgrow MAX_INFLIGHT_BYTES."""
    whole = spec("BYTES", name="record")
    codec = record_codec(served(whole, max_rows=1), mapping(whole, functions="functions.py"))
    few, many = chunk_of(codec, record({"v": [[]]}), record({"v": [[]] * 101}, 1)).sizes
    assert many - few == 100 * len("[], ") * (1 + WHOLE_HOLDS)


def test_a_length_that_no_bucket_takes_is_refused() -> None:
    """As a request's."""
    axis = Axis("input x axis 1", (2, 4), {Spot(0, 0): 0})
    signature = served(spec("FP32", None), axes=(axis,))
    codec = record_codec(signature, mapping(spec("FP32", None)))
    reading = codec.read([record({"x": [1] * 5}), record({"x": [1] * 3}, 1), record({"x": [2] * 3}, 2)])
    assert [rejection.message for _, rejection in reading.rejections] == ["input x axis 1: 5 long, at most 4 is taken"]
    [chunk] = reading.chunks
    assert chunk.shapes == [((3,),)] * 2


def test_records_whose_answers_go_to_other_topics_have_chunks_of_their_own() -> None:
    """A chunk says all that its records have in common once."""
    codec = record_codec(served(), mapping(), reply_topics={"others": 1})
    elsewhere = [("kafka_replyTopic", b"others")]
    records = [record({"x": at}, at, headers=elsewhere if at == 1 else ()) for at in range(3)]
    chunks = codec.read(records).chunks
    assert sorted(list(chunk.at) for chunk in chunks) == [[0, 2], [1]]
    assert all(chunk.partition == PAYMENTS for chunk in chunks)


def test_a_record_without_an_answer_that_can_be_written_is_told() -> None:
    """The codec's rule holds for records, too: NaN has no form in JSON unless null is wanted."""
    codec = record_codec(served(), mapping(), non_finite_output="allow")
    chunk = chunk_of(codec, record({"x": 1}), record({"x": 1}, 1))
    values = np.array([[1, np.nan], [1, 2]], "<f4")
    first, second = codec.write(Prediction(chunk, [values]))
    assert isinstance(first, Rejection)
    assert second[2] == b'{"y":[1.0,2.0]}'
    assert Y.name in first.message


@pytest.mark.parametrize("extreme", [b"1e308", b"-1.5E+0300", b"2e-310 "])
def test_a_record_of_numbers_that_take_long_to_read_is_refused(extreme: bytes) -> None:
    """2.5 s for 1 MiB. Its neighbours are read, and so are a thousand such numbers, other numbers, and texts."""
    numbers = b"[" + b",".join([extreme] * MOST_EXTREMES) + b"]"
    many = b'{"x":1,"many":[%b,%b]}' % (numbers, extreme)
    fit = b'{"x":1,"many":%b,"text":"%b","others":%b}' % (numbers, b"1e300" * 5000, b"[" + b"1e99," * 5000 + b"1]")
    codec = record_codec(served(), mapping())

    reading = codec.read([record(fit), record(many + b" " * 16_384, 1), record(many, 2), record({"x": 1}, 3)])

    assert [list(chunk.at) for chunk in reading.chunks] == [[0, 2, 3]]  # in a small record they cost little
    [(slow, rejection)] = reading.rejections
    assert (slow, rejection.code) == (1, Code.RESOURCE_EXHAUSTED)
    assert rejection.message == "the record has more than 1,000 numbers beyond 1e200 or below 1e-200"
    assert not codec.read([record(fit)]).rejections


def test_values_whose_fields_are_not_read_are_not_searched() -> None:
    """Pictures and texts may hold anything."""
    value, text = b"1e300," * 5000, spec("BYTES")
    codec = record_codec(served(text), mapping(text, reader_of=None, inputs={"x": "$value"}))

    [chunk] = codec.read([record(value)]).chunks

    assert [*chunk.tensors[0]] == [[value.decode()]]
