"""Records with a schema, in each encoding: what the official client's serializers write is read as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.unit.codecs.records.registry import (
    IN_HEADER,
    PAYMENT,
    PROTO,
    Registry,
    avro,
    compiled,
    framed_by,
    json_schema,
    protobuf,
)
from worker.codecs.records.framing import Frame
from worker.codecs.records.readers import RecordReader, RecordReaders
from worker.core.failures import Reject


class Encoding(NamedTuple):
    """How the official client writes records: its serializer, and what it takes for a record."""

    serializer: Callable[..., Any]
    taken: Callable[[Any], Any] = dict
    # True if a record without some of its last bytes may be another record.
    has_open_end: bool = False


SHOP = compiled(payment=PROTO)
Payment = SHOP["shop.Payment"]
ENCODINGS = {
    "avro": Encoding(avro),
    "json": Encoding(json_schema),
    "protobuf": Encoding(
        lambda registry, **conf: protobuf(registry, Payment, **conf),
        lambda record: Payment(**record),
        has_open_end=True,
    ),
}


@pytest.fixture(params=ENCODINGS)
def encoding(request: Any) -> Encoding:
    return ENCODINGS[request.param]


@pytest.fixture
def registry() -> Registry:
    return Registry()


def written(encoding: Encoding, registry: Registry, record: Any = PAYMENT, **conf: Any) -> tuple[bytes, Frame]:
    value, headers = registry.written(encoding.serializer(registry, **conf), encoding.taken(record))
    return value, framed_by(value, headers)


def test_a_whole_record_is_read_as_it_was_written(encoding: Encoding, registry: Registry) -> None:
    """All of its fields have the values of the publisher."""
    value, frame = written(encoding, registry)

    assert RecordReaders(None).of(registry.schema).read(value, frame) == PAYMENT
    assert frame.schema == registry.schema.id


def test_the_name_of_the_schema_may_be_a_guid_in_a_header(encoding: Encoding, registry: Registry) -> None:
    """The value is the body alone then."""
    value, frame = written(encoding, registry, **IN_HEADER)

    assert RecordReaders(None).of(registry.schema).read(value, frame) == PAYMENT
    assert str(frame.schema) == registry.schema.guid


def test_wanted_fields_are_read_with_their_values(encoding: Encoding, registry: Registry) -> None:
    """A path goes into an object, and to each item of an array."""
    paths = [("amount",), ("channel",), ("customer", "visits"), ("items", "*", "price"), ("tags", "*"), ("gone",)]
    value, frame = written(encoding, registry)

    record = RecordReaders(paths).of(registry.schema).read(value, frame)

    assert (record["amount"], record["channel"]) == (12.5, "POS")
    assert record["customer"]["visits"] == 7
    assert [item["price"] for item in record["items"]] == [1.5, 0.25]
    assert record["tags"] == ["red", "blue"]
    assert "gone" not in record


def test_a_field_without_a_value_is_null_or_missing(encoding: Encoding, registry: Registry) -> None:
    """Avro and JSON say that it is null, and Protobuf does not send it."""
    value, frame = written(encoding, registry, {**PAYMENT, "country": None})

    assert RecordReaders([("country",)]).of(registry.schema).read(value, frame).get("country") is None


def test_a_record_that_is_cut_is_refused(encoding: Encoding, registry: Registry) -> None:
    """Whatever is left of it. A Protobuf message that ends after a field is another message."""
    value, frame = written(encoding, registry)
    reader = RecordReaders(None).of(registry.schema)

    refusals = [refusal_of(reader, value[:end], frame) for end in range(frame.start, len(value))]

    told = [why for why in refusals if why is not None]
    assert len(told) == len(refusals) or (encoding.has_open_end and len(told) > 0.8 * len(refusals))
    assert not any("Secretary" in why for why in told)


def refusal_of(reader: RecordReader, value: bytes, frame: Frame) -> str | None:
    try:
        reader.read(value, frame)
    except Reject as no:
        return no.message
    return None


def test_a_changed_schema_goes_on_in_mid_stream(registry: Registry) -> None:
    """A field is added, one is gone, one has another name and an alias, and one is wider: each has its own schema."""
    fields = [
        {"name": "new", "type": ["null", "string"], "default": None},
        {"name": "total", "type": "double", "aliases": ["amount"]},
        {"name": "age_days", "type": "long"},
    ]
    old = registry.written(avro(registry), PAYMENT)
    old_schema = registry.schema
    changed = avro(registry, {"type": "record", "name": "Payment", "namespace": "shop", "fields": fields})
    new = registry.written(changed, {"new": "n", "total": 7.5, "age_days": 2**40})
    readers = RecordReaders([("amount",), ("age_days",), ("country",)])

    first = readers.of(old_schema).read(old[0], framed_by(*old))
    second = readers.of(registry.schema).read(new[0], framed_by(*new))

    assert first == {"amount": 12.5, "age_days": 400, "country": "DE"}
    assert second == {"amount": 7.5, "age_days": 2**40}


@pytest.mark.parametrize("more", [b"\0", b"\xff\xff", b"}"])
def test_bytes_behind_a_record_are_refused(encoding: Encoding, registry: Registry, more: bytes) -> None:
    """They are no part of it, so it is not what its schema says."""
    value, frame = written(encoding, registry)

    with pytest.raises(Reject, match=r"^(the record|\w+): .*schema 1\)"):
        RecordReaders(None).of(registry.schema).read(value + more, frame)


def test_a_schema_is_read_once(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bad one is refused each time, and a few hundred are remembered."""
    monkeypatch.setattr("worker.codecs.records.readers.MOST_READERS", 2)
    written(ENCODINGS["avro"], registry)
    readers, good = RecordReaders(None), registry.schema
    bad = [good._replace(id=id_, text="{}") for id_ in (7, 8)]

    first = readers.of(good)

    assert readers.of(good) is first
    for schema in (bad[0], bad[0], bad[1]):
        with pytest.raises(Reject, match="cannot be read as an Avro schema"):
            readers.of(schema)
    assert readers.of(good) is not first
